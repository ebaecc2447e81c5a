"""Only what pyproject.toml cannot say: the C core is built by cffi, for the stable ABI."""

from setuptools import setup

setup(cffi_modules=["cffi_build/build.py:ffi"], options={"bdist_wheel": {"py_limited_api": "cp311"}})
