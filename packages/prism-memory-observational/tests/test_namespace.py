import prism.memory.observational


def test_the_distribution_offers_no_names_yet() -> None:
    assert prism.memory.observational.__all__ == []
