"""setuptools' build backend, with the list of an sdist's further files beside this file.

setuptools looks for MANIFEST.in at the top of the repository and offers no setting for another place.
"""

from setuptools.build_meta import *  # noqa: F403
from setuptools.command.egg_info import manifest_maker

manifest_maker.template = ".ci/MANIFEST.in"
