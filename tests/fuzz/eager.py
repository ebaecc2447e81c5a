"""A pytest plugin, `-p tests.fuzz.eager`: garbage is collected all the time, so finalizers run wherever they can."""

import gc

gc.set_threshold(50, 2, 2)
