"""Places for several users."""

import pytest

from tests.users.people import common_place


@pytest.fixture
def place():
    """A directory in which all users of the group may make things, and others look."""
    with common_place() as path:
        yield path
