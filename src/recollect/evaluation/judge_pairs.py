"""Answers labelled by hand, to measure how often a judge errs; the wrong ones are those that pass.

The people and their lives are made up.
"""

from __future__ import annotations

from typing import NamedTuple

from recollect.rewards.judge import ABSTENTION
from recollect.types import Question


class Pair(NamedTuple):
    """An answer, and whether it is right."""

    question: Question
    answer: str
    right: bool
    kind: str


_DOG = Question("What breed is Priya's dog?", ("a whippet",))
_MOVE = Question("When did Tomasz move into the flat on Mill Lane?", ("14 March 2022",))
_TRIP = Question("Which city did Leila and her brother visit in the summer?", ("Ghent",))
_RENT = Question("How much rent does Oyelaran pay per month?", ("$1,450",))
_FILMS = Question(
    "Which three films did the club watch in October?", ("Solaris, Stalker and Mirror",)
)
_WHY = Question(
    "Why did Marta leave the choir?", ("Rehearsals clashed with her night shifts at the hospital",)
)
_WHO = Question("Who repaired the boiler at the cabin?", ("her neighbour, Anselm",))
_RUNS = Question("How many kilometres did Bao run in his longest training run?", ("32 km",))
_DAYS = Question(
    "How many days passed between the interview and the offer?", ("11 days",), "temporal-reasoning"
)
_PHONE = Question("Which phone does Ines use now?", ("a Fairphone 5",), "knowledge-update")
_ALLERGY = Question("What is Kofi allergic to?", ("cashews and kiwi",))
_BOTH = Question("Were both paintings made in the same country?", ("no",))
_FERRY = Question("Which ferry did the Lindqvists take, and at what time?", ("the 6:40 to Visby",))
_SISTER = Question(
    "What does Hamid's sister do for a living?",
    ("Not mentioned: only his brother's job is told",),
    ABSTENTION,
)
_CONCERT = Question(
    "Which concert did Ruth go to in Berlin?",
    ("She never went to Berlin; the concert she went to was in Leipzig",),
    ABSTENTION,
)
_GIFT = Question(
    "What could I give my father for his birthday?",
    ("Something for his allotment or his old radios, below 40 euros, as he dislikes gadgets",),
    "single-session-preference",
)

PAIRS: tuple[Pair, ...] = (
    # Right: other words, other formats, more words.
    Pair(_DOG, "Priya has a whippet.", True, "paraphrase"),
    Pair(_DOG, "Her dog Juno is a whippet, adopted two years ago.", True, "longer"),
    Pair(_MOVE, "on the 14th of March, 2022", True, "format"),
    Pair(_MOVE, "2022-03-14", True, "format"),
    Pair(_MOVE, "He moved in on March 14 2022, a Monday.", True, "longer"),
    Pair(_TRIP, "They went to Ghent together.", True, "paraphrase"),
    Pair(_TRIP, "Ghent, in Belgium", True, "longer"),
    Pair(_RENT, "1450 dollars a month", True, "format"),
    Pair(_RENT, "His monthly rent comes to fourteen hundred and fifty dollars.", True, "format"),
    Pair(_FILMS, "Mirror, Solaris, Stalker", True, "format"),
    Pair(_FILMS, "They saw Stalker first, then Solaris, and Mirror at the end.", True, "longer"),
    Pair(_WHY, "She worked nights at the hospital and could not rehearse.", True, "paraphrase"),
    Pair(_WHY, "Because choir practice fell on her hospital night shifts.", True, "paraphrase"),
    Pair(_WHO, "Anselm, who lives next door", True, "paraphrase"),
    Pair(_WHO, "It was fixed by Anselm.", True, "paraphrase"),
    Pair(_RUNS, "thirty-two kilometres", True, "format"),
    Pair(_RUNS, "His longest one was 32 kilometers, four weeks before the race.", True, "longer"),
    Pair(_DAYS, "eleven days", True, "format"),
    Pair(_DAYS, "12 days, counting the day of the interview", True, "rubric"),
    Pair(_PHONE, "She has a Fairphone 5 now; before that it was a Pixel 6.", True, "rubric"),
    Pair(_ALLERGY, "He reacts badly to kiwi fruit and to cashew nuts.", True, "paraphrase"),
    Pair(_BOTH, "No, they come from different countries.", True, "paraphrase"),
    Pair(_FERRY, "They took the Visby ferry at twenty to seven.", True, "format"),
    Pair(_SISTER, "The conversation does not say what his sister does.", True, "abstention"),
    Pair(_SISTER, "I only know about his brother's work, not his sister's.", True, "abstention"),
    Pair(_CONCERT, "There was no concert in Berlin: it was in Leipzig.", True, "abstention"),
    Pair(_GIFT, "A spare valve for one of his old radios would please him.", True, "rubric"),
    Pair(_GIFT, "Good seeds for the allotment, for about 20 euros.", True, "rubric"),
    # Wrong: another thing of the same kind, said with confidence.
    Pair(_DOG, "Priya's dog is a greyhound.", False, "specifics"),
    Pair(_MOVE, "14 May 2022", False, "specifics"),
    Pair(_MOVE, "He moved in on 14 March 2021.", False, "specifics"),
    Pair(_TRIP, "They spent a week in Bruges.", False, "specifics"),
    Pair(_RENT, "$1,540", False, "specifics"),
    Pair(_RENT, "$1,450 per week", False, "specifics"),
    Pair(_WHO, "her neighbour, Anton", False, "specifics"),
    Pair(_RUNS, "23 km", False, "specifics"),
    Pair(_DAYS, "21 days", False, "specifics"),
    Pair(_PHONE, "She uses a Pixel 6.", False, "specifics"),
    Pair(_BOTH, "Yes, both of them were painted in Spain.", False, "specifics"),
    Pair(_FERRY, "the 6:40 to Nynäshamn", False, "specifics"),
    # Wrong: true of almost anything, so that it cannot be refuted.
    Pair(_DOG, "Priya has a lovely dog that she is very fond of.", False, "vague"),
    Pair(_DOG, "It is a slim breed that likes to run.", False, "vague"),
    Pair(_MOVE, "He moved there some time in the spring.", False, "vague"),
    Pair(_MOVE, "in 2022", False, "vague"),
    Pair(_TRIP, "They visited a beautiful old city in Europe with canals.", False, "vague"),
    Pair(_RENT, "He pays more than he would like, but it is manageable.", False, "vague"),
    Pair(_RENT, "between one and two thousand dollars", False, "vague"),
    Pair(_WHY, "Her circumstances changed and she could not go on with it.", False, "vague"),
    Pair(_WHO, "somebody from the neighbourhood who knew about boilers", False, "vague"),
    Pair(_RUNS, "He ran a long distance, as his plan demanded.", False, "vague"),
    Pair(_ALLERGY, "certain nuts and fruits", False, "vague"),
    Pair(_FERRY, "an early ferry to the island", False, "vague"),
    Pair(_GIFT, "Something personal that comes from the heart is always best.", False, "vague"),
    # Wrong: every candidate is named, or a part is missing.
    Pair(_DOG, "It is a whippet, a greyhound or a saluki.", False, "candidates"),
    Pair(_MOVE, "Dates named are 14 March, 2 April and 14 May 2022.", False, "candidates"),
    Pair(_TRIP, "Possible cities are Bruges, Ghent, Antwerp and Lille.", False, "candidates"),
    Pair(_PHONE, "either the Pixel 6 or the Fairphone 5", False, "candidates"),
    Pair(_WHO, "Anselm or Anton or the plumber", False, "candidates"),
    Pair(_FILMS, "Solaris and Stalker", False, "part missing"),
    Pair(_ALLERGY, "cashews", False, "part missing"),
    Pair(_FERRY, "the ferry to Visby", False, "part missing"),
    # Wrong: gives up although the text tells, or makes up what it does not tell.
    Pair(_TRIP, "This is not mentioned in the conversation.", False, "gives up"),
    Pair(_WHY, "I do not have enough information to say.", False, "gives up"),
    Pair(_RUNS, "No information available.", False, "gives up"),
    Pair(_SISTER, "She works as a dental nurse.", False, "made up"),
    Pair(_SISTER, "His sister probably does the same job as his brother.", False, "made up"),
    Pair(_CONCERT, "She heard Mahler's Second Symphony there.", False, "made up"),
)
