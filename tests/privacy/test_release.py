"""The published form of a release: frozen, lossless, versioned."""

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest

from pymc_dp.privacy import PrivacyGuarantee
from pymc_dp.privacy.release import VERSION, Release

TINY = float(np.nextafter(0, 1))
VALUES = {
    "scalar": np.array(0.1),
    "floats": np.array([-0.0, 0.0, 1 / 3, TINY, -2.2e-308, 1.7976931348623157e308, np.nextafter(1, 2)]),
    "integers": np.array([-(2**63), 2**63 - 1, 2**53 + 1, 0]),
    "unsigned": np.array([2**64 - 1, 0], dtype=np.uint64),
    "bits": np.array([[True, False], [False, True]]),
    "single": np.array([1 / 3, -0.0], dtype=np.float32),
    "small integers": np.array([-128, 127], dtype=np.int8),
    "nothing": np.zeros((0, 3)),
    "not finite": np.array([np.inf, -np.inf]),
    "a table": np.arange(6.0).reshape(1, 2, 3) / 7,
}
PARAMETERS = {
    "scale": 1 / 3,
    "bounds": ((-1.0, -0.0), (1.0, TINY)),
    "n_categories": 2**60,
    "variant": "optimized",
    "edges": (0.1, (0.2, ("deep", None, True, ()))),
    "open": math.inf,
}
PROMISES = [
    None,
    PrivacyGuarantee(0.1),
    PrivacyGuarantee(1.0, 1e-6, 0.1, "add-remove"),
    PrivacyGuarantee(math.inf, mu=1 / 3),
]


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("promise", PROMISES, ids=["none", "pure", "approximate", "gaussian"])
def test_json_loses_nothing(value, promise, tmp_path):
    release = Release(value, "LaplaceMechanism", PARAMETERS, promise)
    back = Release.from_json(release.to_json())
    assert same_bits(back.value, value)
    assert back.parameters == PARAMETERS and repr(dict(back.parameters)) == repr(PARAMETERS)
    assert back.guarantee == promise and back.mechanism == "LaplaceMechanism"
    assert back == release and hash(back) == hash(release)
    release.save(tmp_path / "release.json")
    assert Release.load(tmp_path / "release.json") == release
    assert pickle.loads(pickle.dumps(release)) == release
    json.loads(release.to_json(), parse_constant=pytest.fail)  # strict JSON: no Infinity, no NaN


def test_every_float_comes_back(rng):
    bits = rng.integers(0, 2**64, size=20_000, dtype=np.uint64)
    value = bits.view(float)[np.isfinite(bits.view(float))]
    assert same_bits(Release.from_json(Release(value, "M", {}).to_json()).value, value)


def test_is_frozen():
    source, parameters = np.array([1.0, 2.0]), {"scale": [1.0]}
    release = Release(source, "M", parameters)
    source[0], parameters["scale"] = 9.0, 3
    assert release.value.tolist() == [1.0, 2.0] and release.parameters["scale"] == (1.0,)
    with pytest.raises(ValueError, match="read-only"):
        release.value[0] = 3.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        release.parameters["scale"] = 3.0
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'value'"):
        release.value = 3.0


def test_differs_where_its_content_does():
    release = Release(0.0, "M", {"scale": 1.0})
    for other in (
        Release(-0.0, "M", {"scale": 1.0}),
        Release(0, "M", {"scale": 1.0}),
        Release(0.0, "N", {"scale": 1.0}),
        Release(0.0, "M", {"scale": 1}),
        Release(0.0, "M", {"scale": 1.0}, PrivacyGuarantee(1.0)),
        0.0,
    ):
        assert release != other


def test_prints_as_sentences():
    assert str(Release(2.5, "M", {}, PrivacyGuarantee(1))) == (
        "Release of the value 2.5 by M. "
        "Pure differential privacy with epsilon = 1, for replace-one neighbours."
    )
    assert str(Release(np.zeros((2, 3)), "M", {})) == (
        "Release of 2 x 3 values by M. Its guarantee is not known."
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("words", "M", {}), "value must hold booleans, integers or floats"),
        ((1j, "M", {}), "got dtype complex128"),
        ((2**70, "M", {}), "got dtype object"),
        ((1.0, "", {}), "mechanism must be the name"),
        ((1.0, None, {}), "mechanism must be the name"),
        ((1.0, "M", {"f": len}), r"parameters\['f'\] must be made of numbers"),
        ((1.0, "M", {"x": 1j}), "got complex"),
        ((1.0, "M", {}, 1.0), "guarantee must be a PrivacyGuarantee or None, got float"),
    ],
)
def test_refuses_what_json_cannot_hold(arguments, message):
    with pytest.raises(TypeError, match=message):
        Release(*arguments)


def changed(**fields):
    content = json.loads(Release([1.0, 2.0], "M", {"scale": 1.0}, PrivacyGuarantee(1)).to_json())
    content.update(fields)
    return json.dumps({k: v for k, v in content.items() if v != "leave out"})


BAD = {
    "words": ("hello", "it is not JSON"),
    "bytes": (b"\xff\xfe\x00", "it is not JSON"),
    "a list": ("[1]", 'is not a release: its "format"'),
    "something else": ('{"a": 1}', "is not a release"),
    "another format": (changed(format="other.Release"), "is not a release"),
    "the next version": (
        changed(version=VERSION + 1),
        f"format version {VERSION + 1}, newer than version {VERSION}.*install a newer pymc_dp",
    ),
    "version 0": (changed(version=0), "no valid format version, got 0"),
    "version in words": (changed(version="1"), "no valid format version"),
    "version true": (changed(version=True), "no valid format version"),
    "no value": (changed(value="leave out"), r"damaged: fields missing \['value'\]"),
    "one more field": (changed(note="x"), r"damaged: fields missing \[\], not known \['note'\]"),
    "a length that does not fit": (
        changed(value={"dtype": "float64", "shape": [3], "data": [1.0, 2.0]}),
        "damaged: cannot reshape",
    ),
    "a float among integers": (
        changed(value={"dtype": "int64", "shape": [2], "data": [1, 2.5]}),
        "damaged: an entry of the value does not fit dtype int64",
    ),
    "an integer too large": (changed(value={"dtype": "int8", "shape": [1], "data": [300]}), "damaged: "),
    "code for a dtype": (changed(value={"dtype": "O", "shape": [1], "data": [1]}), "damaged: "),
    "a promise of nothing": (changed(guarantee={"epsilon": -1}), "damaged: epsilon must be"),
    "an unknown promise": (changed(guarantee={"epsilon": 1, "kappa": 1}), "damaged: .*kappa"),
    "parameters no mapping": (changed(parameters=[1]), "damaged: "),
    "mechanism a number": (changed(mechanism=3), "damaged: mechanism must be"),
    "NaN in JSON": (changed(value={"dtype": "float64", "shape": [1], "data": [math.nan]}), "NaN is not JSON"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_refuses_what_it_cannot_read(text, message):
    with pytest.raises(ValueError, match=message):
        Release.from_json(text)
