"""Cases that show one thing more of what others show, and so run by scripts/test --full alone."""

import pytest


def first(count, cases):
    """So many of the cases always, the others in full runs."""
    def rare(case):
        if isinstance(case, type(pytest.param())):
            return case._replace(marks=[*case.marks, pytest.mark.full])
        return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.full)

    return [*cases[:count], *map(rare, cases[count:])]
