"""The published form of a release: frozen, lossless, versioned."""

import dataclasses
import json
import math
import pickle
import re
import tracemalloc
from collections import Counter

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
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


DEEP = [1.0]
for _ in range(40):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, "M\ud800", {}), "mechanism has half of a surrogate pair"),
        ((1.0, "M", {"x": "\udfff"}), r"parameters\['x'\] has half of a surrogate pair"),
        ((1.0, "M", {"\ud800": 1}), "parameters has half of a surrogate pair"),
        ((1.0, "M", {"x": DEEP}), r"parameters\['x'\] has tuples nested more than 32 deep"),
        ((1.0, "M", {"x": 2**64}), r"parameters\['x'\] has a whole number of more than 64 bits"),
        ((np.zeros((1,) * 40), "M", {}), "value must have at most 32 axes, got 40"),
    ],
)
def test_refuses_what_could_not_be_read_back(arguments, message):
    with pytest.raises(ValueError, match=message):
        Release(*arguments)


def test_what_may_just_be_written_is_read_back():
    deepest = np.zeros((1,) * 32)
    release = Release(deepest, "M", {"x": 1 - 2**64, "y": deepest.tolist(), "z": "\U0001f600\0"})
    assert Release.from_json(release.to_json()) == release
    assert Release.from_json(release.to_json().encode("utf-16")) == release


def test_a_name_is_published():
    release = dp.LaplaceMechanism.release(
        dp.record_sum(np.ones(4)), epsilon=1, bounds=(0, 1), name="people who smoke"
    )
    assert json.loads(release.to_json())["version"] == 4
    counts = dp.Release([31, -2, 4], "DiscreteLaplaceMechanism", {"scale": 2.0}, name="people who smoke")
    listed = counts.postprocessed(suppress_below=3, unknown_keys=True)
    for one in (release, release.postprocessed(round_to=5), counts, listed):
        for again in (Release.from_json(one.to_json()), pickle.loads(pickle.dumps(one))):
            assert again == one and again.name == "people who smoke"
            assert again.processing == one.processing
        assert str(one).startswith("people who smoke: Release of ")
    other = dp.LaplaceMechanism.release(dp.record_sum(np.ones(4)), epsilon=1, bounds=(0, 1))
    assert json.loads(other.to_json())["version"] == 1 and other.name is None
    assert "people who smoke and LaplaceMechanism together" in str(dp.guarantee([release, other]))
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=4)
        dp.LaplaceMechanism("z", dp.record_sum(x), observed=release)
    with pytest.raises(TypeError, match="name must be a name"):
        Release(1.0, "M", {}, name=3)
    with pytest.raises(ValueError, match="damaged: name must be a name"):
        Release.from_json(changed(version=4, postprocessed=None, name=None))
    for broken in (5, "x", [1], {"unknown_keys": True}):
        with pytest.raises(ValueError, match="damaged"):
            Release.from_json(changed(version=4, postprocessed=broken, name="x"))
    with pytest.raises(ValueError, match=r"damaged: fields missing \['name', 'postprocessed'\]"):
        Release.from_json(changed(version=4))


def changed(**fields):
    content = json.loads(Release([1.0, 2.0], "M", {"scale": 1.0}, PrivacyGuarantee(1)).to_json())
    content.update(fields)
    return json.dumps({k: v for k, v in content.items() if v != "leave out"})


def array(dtype, shape, data):
    return changed(value={"dtype": dtype, "shape": shape, "data": data})


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
    "a table for a dtype": (
        array("(100000000,)f8", [1], [1]),
        "damaged: the dtype of the value is none of bool",
    ),
    "a void for a dtype": (array("V2000000000", [1], [1]), "damaged: the dtype of the value is none of"),
    "text for a dtype": (array("U400000000", [1], [1]), "damaged: the dtype of the value is none of"),
    "a dtype that is no name": (array(["f8"], [1], [1]), "damaged: the dtype of the value is none of"),
    "a dtype with a syntax": (array("1,(2", [1], [1]), "damaged: the dtype of the value is none of"),
    "a dtype of a broken word": (array("\ud800", [1], [1]), "damaged: the dtype of the value is none of"),
    "a huge shape": (array("float64", [10**12], [1.0]), "damaged: cannot reshape the value: 1 entries"),
    "a huge empty shape": (array("float64", [0, 2**62, 2**62], []), "damaged: "),
    "a shape past 64 bits": (array("float64", [2**64, 0], []), "damaged: the shape of the value"),
    "many axes": (array("float64", [1] * 5000, [1.0]), "damaged: cannot reshape the value"),
    "a shape that is a number": (array("float64", 1, [1.0]), "damaged: data and shape of the value must be"),
    "data that are words": (array("float64", [1], "1"), "damaged: data and shape of the value must be"),
    "lists in data": (array("float64", [1], [[1.0]]), "damaged: an entry of the value does not fit"),
    "too large for half": (array("float16", [1], [1e6]), "damaged: an entry of the value is too large for"),
    "too large for single": (
        array("float32", [1], [1e300]),
        "damaged: an entry of the value is too large for",
    ),
    "an integer below": (
        array("uint8", [1], [-1]),
        "damaged: an entry of the value does not fit dtype uint8",
    ),
    "a value of more fields": (
        changed(value={"dtype": "bool", "shape": [], "data": [True], "x": 1}),
        "damaged: ",
    ),
    "another object": (
        array("float64", [1], [{"float": ["inf"]}]),
        "damaged: value has an object that is not",
    ),
    "an object with more": (
        array("float64", [1], [{"float": "inf", "x": 1}]),
        "damaged: value has an object",
    ),
    "1e400": (changed().replace("2.0", "1e400"), "the number 1e400 is too large for a float"),
    "many digits": (changed().replace("2.0", "9" * 5000), "a whole number of 5000 digits"),
    "a version of many digits": (
        changed(version=1).replace('"version": 1', f'"version": {"9" * 99}'),
        "99 digits",
    ),
    "65 bits": (changed(parameters={"k": 2**65}), "damaged: .*more than 64 bits"),
    "deep": (changed(parameters={"k": DEEP}), "damaged: k has lists nested more than 32 deep"),
    "deeper": (
        changed(parameters={}).replace("{}", '{"k": ' + "[" * 800 + "]" * 800 + "}"),
        "damaged: k has lists",
    ),
    "deepest": (changed(parameters={}).replace("{}", '{"k": ' + "[" * 10**5 + "]" * 10**5 + "}"), "not JSON"),
    "a broken word": (changed(mechanism="\ud800"), "damaged: mechanism has half of a surrogate pair"),
    "a broken parameter": (changed(parameters={"k": ["\ud800"]}), "damaged: .*half of a surrogate pair"),
    "a broken field": (changed(**{"\ud800": 1}), "damaged: fields missing"),
    "a promise past floats": (
        changed(guarantee={"epsilon": 1, "mu": 1e200}),
        r"damaged: mu = 1e\+200 is larger",
    ),
    "a promise in a list": (changed(guarantee={"epsilon": [1]}), "damaged: epsilon of the guarantee must be"),
    "a promise as a list": (changed(guarantee=[1]), "damaged: guarantee must be an object"),
    "a promise without epsilon": (changed(guarantee={"delta": 0}), "damaged: guarantee must have epsilon"),
    "neighbours in a list": (changed(guarantee={"epsilon": 1, "neighbours": []}), "damaged: neighbours"),
    "twice": (changed().replace('"mechanism"', '"version": 1, "mechanism"'), "a field is in it twice"),
    "NaN in JSON": (changed(value={"dtype": "float64", "shape": [1], "data": [math.nan]}), "NaN is not JSON"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_refuses_what_it_cannot_read(text, message):
    with pytest.raises(ValueError, match=message):
        Release.from_json(text)


def test_the_text_is_text():
    for text in (None, 3, ["{}"]):
        with pytest.raises(TypeError, match="text must be the JSON text of a release"):
            Release.from_json(text)


def test_a_file_of_other_bytes(tmp_path):
    (tmp_path / "r.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="it is not JSON"):
        Release.load(tmp_path / "r.json")


# ---- mutations -----------------------------------------------------------------------------------------

WORDS = [
    '"(100000000,)f8"', '"V2000000000"', '"U400000000"', '"float64"', '"uint8"', '"O"', '"1,(2"',
    '"\\ud800"', "1e400", "-1e400", "1e-400", "9" * 30, "9" * 5000, "-1", "0", "1", "1.5", "1e300", "NaN",
    "Infinity", "true", "null", "[]", "{}", "[[[[]]]]", "[" * 60 + "]" * 60, '{"float": "inf"}',
    '{"float": "x"}', '{"float": []}', '"neighbours"', '"\\u0000"', "4611686018427387904", "1" + "0" * 12,
]  # fmt: skip
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|[a-z]+|[\[\]{},:]')


def mutated(text, rng):
    """A few values exchanged for others, or characters exchanged, deleted or doubled."""
    parts = TOKEN.findall(text)
    places = [k for k, part in enumerate(parts) if part not in set("[]{},:") and parts[k + 1] != ":"]
    other = [*WORDS, *(parts[k] for k in places)]
    if rng.random() < 0.3:
        parts, other = list(text), [chr(rng.integers(0x20, 0xE000)), "", *'0"[]{},:', text[:3]]
        places = range(len(parts))
    for _ in range(rng.integers(1, 4)):
        parts[places[rng.integers(len(places))]] = other[rng.integers(len(other))]
    return "".join(parts)


def fuzz(rng, read, count):
    """Read mutations; return how many were releases, all errors by type, and the most memory taken."""
    whole = [
        Release(value, "LaplaceMechanism", PARAMETERS, promise).to_json()
        for value in VALUES.values()
        for promise in PROMISES
    ]
    good, errors, most = 0, Counter(), 0
    tracemalloc.start()
    try:
        for _ in range(count):
            text = mutated(whole[rng.integers(len(whole))], rng)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            try:
                release = read(text)
            except Exception as error:
                errors[type(error)] += 1
                str(error).encode()  # a message that no log can hold is no message
            else:
                good += 1
                assert Release.from_json(release.to_json()) == release
                (str(release) + repr(release)).encode()
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return good, errors, most


def test_mutations_are_releases_or_value_errors(rng):
    good, errors, most = fuzz(rng, Release.from_json, 3000)
    assert set(errors) == {ValueError} and errors.total() > 1000 and good > 100
    assert most < 500_000


def test_mutations_find_dtypes_that_are_handed_to_numpy(rng):
    """The same with a reader that believes the file, as a check of the test itself."""

    def read(text):
        dtype = np.dtype(json.loads(text)["value"]["dtype"])
        np.zeros(min(dtype.itemsize, 10**7), dtype=np.int8)
        return Release.from_json(text)

    _, errors, most = fuzz(rng, read, 3000)
    assert TypeError in errors and most > 5_000_000
