"""How a session of a ledger is worded: frames with alternatives, drawn anew for every payment.

Each exchange about a payment gives its item, its amount and its category once, in one line or
spread over a few; nothing else that is said holds an amount or a category. Knows nothing of
questions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from itertools import chain
from random import Random
from typing import Protocol


class Payment(Protocol):
    """What is talked about."""

    @property
    def category(self) -> str: ...
    @property
    def item(self) -> str: ...
    @property
    def amount(self) -> str: ...


_CHOICE = re.compile(r"\[([^\[\]]*)\]")

# [a|b] stands for one of them; an empty one leaves the place out.
_NOTED = (
    "[All right, I have noted it|Noted|Got it|Done|That is in the books|I have written it down"
    "|Thanks, it is recorded|Okay, added|Saved|Fine, that is entered]"
    "[.|. Anything else?|, thank you.]"
)
_WHEN = "[| today| this morning| this afternoon| at noon| on my way home| earlier| this evening]"
EXCHANGES: tuple[tuple[str, ...], ...] = (
    (
        "User: [I spent|I have spent|I just spent|In the end I spent] ${amount} on {item}"
        + _WHEN
        + ". [That belongs under|Put it under|It goes under|File it under|Please count it as]"
        " {category}.",
        "Assistant: " + _NOTED,
    ),
    (
        "User: [I paid|I had to pay|They asked|They charged me] ${amount} for {item}"
        + _WHEN
        + ", [category|which is|so it counts as|to be filed under] {category}.",
        "Assistant: " + _NOTED,
    ),
    (
        "User: [Please record|Please write down|Enter|Can you add|Note down|I would like to log]"
        " ${amount} for {item}, [category|under|as] {category}[.|, please.]",
        "Assistant: " + _NOTED,
    ),
    (
        "User: [There was also|Then there was|I forgot about|Next came|And then] {item}"
        + _WHEN
        + ", [which cost me|at|for|which came to|and that was] ${amount}.",
        "Assistant: [I have filed that as|That goes under|I am putting it down under"
        "|I count that as|Filed under|Recorded in] {category}.",
    ),
    (
        "User: [Oh, and|Also,|One more:|Next,|Ah yes,] {item}: ${amount}.",
        "Assistant: [Thanks.|Sure.|Of course.|Right.|Okay.] [I am putting it down under"
        "|That makes one more entry in|I will book it as|This one belongs to] {category}.",
    ),
    (
        "Assistant: [Did you pay for anything in|Was there anything in|Do we have something for"
        "|Any costs in|Shall we look at] {category}" + "[| today| this time]?",
        "User: [Yes,|Right,|Only|Just|I think only] {item}, [for|at|which was|that came to]"
        " ${amount}.",
    ),
    (
        "User: [Something for|One for|I have an entry for|There is a payment for] {category}"
        " [came up today|today|to record]: {item}.",
        "Assistant: [How much was it?|And the amount?|What did it cost?|What was the price?"
        "|How much did you pay?]",
        "User: [It was|That was|It came to|They charged|I paid|The bill said] ${amount}.",
    ),
    (
        "Assistant: [Shall I add anything else?|What is next?|Go on, please.|Anything more?]",
        "User: [The receipt for|The bill for|My receipt for|The invoice for] {item} [says|shows"
        "|comes to|is over] ${amount}, so [add that to|put that under|book it under|count it in]"
        " {category}.",
    ),
    (
        "User: [Guess what|You know what|Would you believe it]? For {item} [I paid|they took"
        "|I was charged|I left] ${amount}" + _WHEN + ".",
        "Assistant: [That much?|I see.|Not bad.|Good to know.] [Under which category?"
        "|Where does it belong?|Which category is that?|How shall I file it?]",
        "User: [Under|That is|Put it into|I would say|Clearly] {category}.",
    ),
    (
        "User: [I paid for|I got|I finally took care of|I had to see to|I settled] {item}"
        + _WHEN
        + ".",
        "Assistant: [So that is|I suppose that is|Shall I file it under|That would be] {category}"
        "[, right? How much?|. And how much?|. What did you pay?|. The amount?]",
        "User: [Yes.|Right.|Exactly.|Correct.] ${amount}[.| in all.| altogether.| to the cent.]",
    ),
    (
        "User: [My card was charged|The bank took|There went|I handed over|I transferred]"
        " ${amount}" + _WHEN + ".",
        "Assistant: [What for?|For what?|What was that?|What did you buy?]",
        "User: [For|That was|It was for] {item}, [so|meaning|in short:|which makes it] {category}.",
    ),
    (
        "Assistant: [Under {category} I still have|For {category} you told me about|In {category}"
        " we still need|I see {category} is open:] {item}[.|, is that right?|, if I recall.]",
        "User: [Yes, it was|Right, the price was|Exactly,|True, I paid|Yes, they took|Indeed,"
        "|Well remembered:] ${amount}[.| in the end.| altogether.]",
    ),
)
CHATTER: tuple[tuple[str, ...], ...] = (
    (
        "User: It has been [raining|snowing|windy|very hot|grey] [all day|since noon|again] here.",
        "Assistant: [I hope it clears up soon.|Stay warm.|Then stay in, if you can.]",
    ),
    (
        "User: I slept [badly|well|too little|like a stone] last night.",
        "Assistant: [That happens.|I see.|Oh.] [Try to rest this evening.|Take it easy today.]",
    ),
    (
        "User: Do you think I spend too much?",
        "Assistant: [We can look at it at the end of the month.|You are doing fine.|Hard to say.]",
    ),
    (
        "User: My [sister|brother|aunt|old friend|cousin] is [visiting|calling|moving] next week.",
        "Assistant: [That sounds nice.|You must be looking forward to it.|How long for?]",
    ),
    (
        "Assistant: [Keep the receipts, please.|Do keep your receipts.]",
        "User: [I always do. Well, nearly always.|They are all in the drawer.|I will.]",
    ),
    (
        "User: [Let me think what else there was.|Wait, let me look at my notes.|One moment.]",
        "Assistant: [Take your time.|No hurry.|I am listening.]",
    ),
    (
        "User: I [walked|cycled|ran] home to save some money.",
        "Assistant: [Good for you.|And it is healthy, too.|Well done.]",
    ),
    (
        "User: The [neighbours|children upstairs|builders|dogs next door] were noisy again.",
        "Assistant: [That must be tiring.|Have you talked to them?|I am sorry to hear it.]",
    ),
    (
        "Assistant: How was the rest of your day?",
        "User: [Busy, but fine.|Long.|Quiet, for once.|Better than yesterday.|The usual.]",
    ),
    (
        "User: I nearly bought [a lamp|a chair|a new bag|another plant|a watch], but left it.",
        "Assistant: [Then there is nothing to record.|No entry, then.|That saves us a line.]",
    ),
    (
        "User: [Work|The office|My new job] was [hectic|calm|odd|fun] today.",
        "Assistant: [Tell me more.|I can imagine.|At least it is over now.]",
    ),
    (
        "User: Can I [pay back|lend|borrow] money [next month|later], or is that a bad idea?",
        "Assistant: [It depends.|Let us talk about that another time.|As you like.]",
    ),
    (
        "User: I am [cooking|baking|reading|painting] [tonight|this weekend].",
        "Assistant: [Enjoy it.|Lovely.|What will it be?]",
    ),
    (
        "Assistant: You are [good|getting better] at this.",
        "User: [Thanks.|Practice, I suppose.|You make it easy.]",
    ),
    (
        "User: How many [days|weeks] are left until the holidays?",
        "Assistant: [Not many.|Fewer than you think.|Too many, probably.]",
    ),
    (
        "User: [Prices are going up|Everything is getting dearer|It all adds up], isn't it so?",
        "Assistant: [It seems so.|That is why we write it down.|Sadly, yes.]",
    ),
)
OPENINGS = (
    "User: [Hello|Hi|Good evening|Hey there][, let us go through what I spent today."
    "|. Time to do the accounts.|. Shall we do the books?|, I have a few things to record.]",
    "Assistant: [Good evening|Hello|Welcome back|Hi][. What shall we record today?"
    "|. Ready for the accounts?|. What did you spend today?|, let us do the books.]",
)
CLOSINGS = (
    "Assistant: [That is everything for today, then.|Then we are done for today."
    "|All written down. See you next time.|The books are up to date.]",
    "User: [That was all.|Nothing else.|That is it.|No more for now.] [Thank you.|Good night.|Bye."
    "|Until next time.]",
)


def dialogue(payments: Sequence[Payment], day: date, idle: int, rng: Random) -> str:
    """Word a session as a talk, with idle exchanges anywhere between the others."""
    exchanges = [
        [
            line.format(amount=payment.amount, item=payment.item, category=payment.category)
            for line in say(rng.choice(EXCHANGES), rng)
        ]
        for payment in payments
    ]
    for lines in rng.sample(CHATTER, min(idle, len(CHATTER))):
        exchanges.insert(rng.randint(0, len(exchanges)), say(lines, rng))
    first, last = say((rng.choice(OPENINGS), rng.choice(CLOSINGS)), rng)
    spoken = [first, *chain.from_iterable(exchanges), last]
    parts = (line.partition(": ") for line in spoken)
    return "\n".join(f'[{day}] {role} said, "{_capital(said)}"' for role, _, said in parts)


def say(lines: Sequence[str], rng: Random) -> list[str]:
    """Choose one of the alternatives wherever there are some."""
    return [_CHOICE.sub(lambda match: rng.choice(match[1].split("|")), line) for line in lines]


def frames(line: str) -> int:
    """Count the ways of saying a line."""
    total = 1
    for match in _CHOICE.finditer(line):
        total *= len(match[1].split("|"))
    return total


def _capital(said: str) -> str:
    return said[0].upper() + said[1:]
