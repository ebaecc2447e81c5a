import pytest
from loops import run


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request):
    """Runs a coroutine function, in each loop that speaks as asyncio does."""
    return lambda work: run(request.param, work)
