"""Only what pyproject.toml cannot say: the C core is built by cffi, for the stable ABI where there is one."""

import sysconfig

from setuptools import setup

stable = not sysconfig.get_config_var("Py_GIL_DISABLED")  # without the interpreter's lock, none that cffi can use
setup(
    cffi_modules=["cffi_build/build.py:ffi"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if stable else {},
)
