import importlib.metadata

import prism.core


def test_the_version_is_the_distributions() -> None:
    assert prism.core.__version__ == importlib.metadata.version("prism-core")
