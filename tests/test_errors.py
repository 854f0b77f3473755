"""Errors: user mistakes pass through, foreign errors keep the innermost boundary."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from recollect.concurrency.stop import Interrupted
from recollect.errors import BoundaryError, UserError, boundary
from recollect.types import Failure, Question


def test_user_error_is_one_message_with_its_fix():
    error = UserError("no model folder at 'x'", "give --model.path a folder")
    assert str(error) == "no model folder at 'x'\n  fix: give --model.path a folder"
    assert (error.what, error.fix) == ("no model folder at 'x'", "give --model.path a folder")
    assert str(UserError("only this")) == "only this"


def test_boundary_attributes_a_foreign_error():
    with pytest.raises(BoundaryError) as caught, boundary("policy"):
        raise ConnectionError("refused")
    assert caught.value.failure == Failure("policy", "ConnectionError", "refused")
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert str(caught.value) == "policy: ConnectionError: refused"


def test_the_innermost_boundary_keeps_the_error():
    with pytest.raises(BoundaryError) as caught, boundary("agent"), boundary("policy"):
        raise ValueError("x")
    assert caught.value.failure.boundary == "policy"


def test_the_place_of_a_frozen_class_is_the_line_that_changed_it():
    question = Question("Who?", ("Ada",))
    with pytest.raises(BoundaryError) as caught, boundary("agent"):
        question.text = "Where?"
    assert caught.value.failure.kind == "FrozenInstanceError"
    assert caught.value.failure.place.rpartition(":")[0].endswith("test_errors.py")


async def gives_up():
    await asyncio.wait_for(asyncio.sleep(5), 0.001)


def test_the_place_of_ones_own_limit_is_its_line_and_a_servers_has_none():
    with pytest.raises(BoundaryError) as caught, boundary("agent"):
        asyncio.run(gives_up())
    assert caught.value.failure.kind == "TimeoutError"
    assert caught.value.failure.place.rpartition(":")[0].endswith("test_errors.py")
    with pytest.raises(BoundaryError) as caught, boundary("agent"):
        raise TimeoutError("a server's")
    assert caught.value.failure.place == ""


def test_the_place_in_a_script_of_ones_own_is_its_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from dataclasses import dataclass\nfrom recollect.errors import place_of\n"
        "@dataclass(frozen=True)\nclass A:\n    x: int = 1\ntry:\n    A().x = 3\n"
        "except Exception as error:\n    print(place_of(error))\n"
    )
    done = subprocess.run([sys.executable, script], stdout=-1, text=True, check=True)
    assert done.stdout.strip() == f"{script}:7"


def test_no_error_no_trace():
    with boundary("agent"):
        pass


@pytest.mark.parametrize("kind", [Interrupted, asyncio.CancelledError])
def test_what_a_person_ends_is_not_a_failure(kind):
    with pytest.raises(kind), boundary("agent"):
        raise kind


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_code_raises_to_end_python_is_a_failure(kind):
    with pytest.raises(BoundaryError) as caught, boundary("reward"):
        raise kind(3)
    assert caught.value.failure.kind == kind.__name__ and caught.value.failure.message == "3"
    assert caught.value.failure.boundary == "reward" and caught.value.failure.place


def test_what_libraries_raise_beside_exceptions_is_a_failure():
    class PanicException(BaseException):
        """As code in Rust raises it."""

    with pytest.raises(BoundaryError) as caught, boundary("render"):
        raise PanicException("index out of bounds")
    assert caught.value.failure.kind == "PanicException"


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit])
def test_what_ends_a_coroutine_passes_through(kind):
    with pytest.raises(kind), boundary("agent"):
        raise kind


def test_user_errors_pass_through():
    with pytest.raises(UserError, match="mine"), boundary("agent"):
        raise UserError("mine")


async def in_a_task_group(*errors: Exception) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(fail(error))


def test_a_task_group_hides_no_user_error():
    with pytest.raises(UserError, match="mine"), boundary("agent"):
        asyncio.run(in_a_task_group(ValueError("other"), UserError("mine")))


def test_a_task_group_keeps_the_boundary_inside():
    inside = BoundaryError("policy", ConnectionError("refused"))
    with pytest.raises(BoundaryError) as caught, boundary("agent"):
        asyncio.run(in_a_task_group(inside))
    assert caught.value is inside


def test_a_task_group_of_foreign_errors_is_named_after_the_first():
    with pytest.raises(BoundaryError) as caught, boundary("agent"):
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [KeyError("k")]), ValueError("v")])
    assert caught.value.failure == Failure("agent", "KeyError", "'k'", "agent")
