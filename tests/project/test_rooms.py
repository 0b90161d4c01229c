"""The plan of the house: every module lies in a room, and so does what tests it."""

from pathlib import Path

HOUSE = Path(__file__).parents[2] / "harness"
ROOMS = set("cli llamacpp machine measuring questions records report serving verdicts".split())
DOORS = {"plugin.py", "suite.py", "settings.py", "options.py", "errors.py", "quantities.py"}
BESIDE = {"__init__.py", "__main__.py", "py.typed", "models"}
LONGEST = 400


def test_nothing_lies_in_the_hall() -> None:
    found = {p.name for p in HOUSE.iterdir() if p.name != "__pycache__"}
    assert found == ROOMS | DOORS | BESIDE


def test_no_module_is_longer_than_it_may_be() -> None:
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in HOUSE.rglob("*.py")}
    assert {str(p): n for p, n in lines.items() if n > LONGEST} == {}


def test_unit_tests_lie_in_the_room_of_what_they_test() -> None:
    units = Path(__file__).parents[1] / "unit"
    assert {p.name for p in units.iterdir() if p.is_dir() and p.name != "__pycache__"} == ROOMS
    assert {p.name for p in units.glob("test_*.py")} == {"test_settings.py"}
