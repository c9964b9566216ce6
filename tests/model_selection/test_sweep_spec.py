from skdpfair.model_selection._sweep_spec import FORMAT_VERSION, SweepSpec


def test_spec_is_known_if_a_sweep_made_it():
    assert not SweepSpec().is_known and SweepSpec(skdpfair="1.0").is_known
    assert SweepSpec().format_version == FORMAT_VERSION == 1
