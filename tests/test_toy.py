"""The small world, its tokenizer and batches, and a base model that is trained once and never believed unchecked."""

import math
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from pipesim.toy import base_model, weights_file  # noqa: E402
from pipesim.toy.base_model import Recipe, cache_folder, load_or_train_base_model, unigram_entropy  # noqa: E402
from pipesim.toy.data import get_batch  # noqa: E402
from pipesim.toy.gpt import Gpt, GptSpec  # noqa: E402
from pipesim.toy.tokenizer import CharTokenizer  # noqa: E402
from pipesim.toy.world import ALPHABET, SAYINGS, build_world  # noqa: E402

SMALL = GptSpec(width=8, blocks=1, heads=2, context=16)
QUICK = Recipe(steps=2, batch=2, length=8)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def quick(cache, spec=SMALL, recipe=QUICK, **given_text):
    return load_or_train_base_model(spec, recipe, cache=cache, **given_text)


def weights_of(base):
    return {name: parameter.clone() for name, parameter in base.model.named_parameters()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# the world and its text


def test_the_world_is_the_same_each_time_and_speaks_of_itself_alone():
    world = build_world()
    assert world == build_world()
    named = {*world.people, *world.places, *world.things}
    assert len(named) == len(world.people) + len(world.places) + len(world.things)
    assert all(each.one in named and (each.other in named or each.other.isdigit()) for each in world.relations)
    assert {each.kind for each in world.relations} == set(SAYINGS)


def test_every_question_about_the_world_has_one_answer():
    relations = build_world().relations
    assert len({(each.one, each.kind) for each in relations}) == len(relations) == 66
    owned = [each.other for each in relations if each.kind == "owns"]
    assert sorted(owned) == sorted(build_world().things)


def test_friends_are_friends_with_each_other_and_nobody_with_themselves():
    friend = {each.one: each.other for each in build_world().relations if each.kind == "is friends with"}
    assert all(friend[friend[name]] == name != friend[name] for name in friend)


def test_the_text_uses_the_whole_alphabet_of_44_characters_and_no_other():
    assert len(ALPHABET) == len(set(ALPHABET)) == GptSpec().vocab == 44
    assert set(build_world().train_text()) == set(ALPHABET)


def test_every_round_of_the_text_says_every_relation_once():
    world = build_world()
    lines = world.train_text(rounds=3).splitlines()
    assert len(lines) == 3 * len(world.relations)
    sayings = {
        saying.format(one=each.one, other=each.other): each for each in world.relations for saying in SAYINGS[each.kind]
    }
    rounds = [lines[k : k + len(world.relations)] for k in range(0, len(lines), len(world.relations))]
    for each in rounds:
        assert {sayings[line] for line in each} == set(world.relations)
    assert len({tuple(each) for each in rounds}) == 3


def test_the_text_is_the_same_on_every_machine():
    assert build_world().train_text(rounds=1).splitlines()[:2] == ["kim is friends with jo.", "kim's home: grey-lake."]
    with pytest.raises(ValueError, match=r"^rounds=0 must be at least 1\. Nearest: 1\.$"):
        build_world().train_text(rounds=0)


# the tokenizer


@given(st.text(alphabet=ALPHABET))
def test_decoding_what_was_encoded_gives_the_text_back(text):
    tokens = CharTokenizer().encode(text)
    assert CharTokenizer().decode(tokens) == text
    assert len(tokens) == len(text)


@given(st.lists(st.integers(0, 43)))
def test_encoding_what_was_decoded_gives_the_tokens_back(tokens):
    assert CharTokenizer().encode(CharTokenizer().decode(tokens)) == tokens


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ada Is", f"character 'I' at position 4 is outside the alphabet of 44 characters {ALPHABET!r}. Nearest: 'i'."),
        ("é", f"character 'é' at position 0 is outside the alphabet of 44 characters {ALPHABET!r}."),
    ],
)
def test_a_character_outside_is_named_with_its_position_and_the_alphabet(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CharTokenizer().encode(text)


@pytest.mark.parametrize(("token", "nearest"), [(44, 43), (-1, 0)])
def test_a_token_outside_is_named_with_its_position(token, nearest):
    message = f"token {token} at position 1 must lie between 0 and 43. Nearest: {nearest}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CharTokenizer().decode([0, token])


@pytest.mark.parametrize(("alphabet", "what"), [("", "is empty"), ("aba", "has 'a' twice")])
def test_an_alphabet_names_each_character_once(alphabet, what):
    with pytest.raises(ValueError, match=what):
        CharTokenizer(alphabet=alphabet)


# batches


@given(batch=st.integers(1, 5), length=st.integers(1, 9), seed=st.integers(0, 99))
def test_targets_are_the_inputs_one_token_later(batch, length, seed):
    data = torch.arange(10)
    inputs, targets = get_batch(data, batch, length, torch.Generator().manual_seed(seed))
    assert inputs.shape == targets.shape == (batch, length)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)
    assert (torch.diff(inputs) == 1).all()


def test_every_start_comes_up_the_first_and_the_last_too():
    inputs, _ = get_batch(torch.arange(6), 200, 3, torch.Generator().manual_seed(0))
    assert sorted(set(inputs[:, 0].tolist())) == [0, 1, 2]


@pytest.mark.parametrize(
    ("tokens", "sizes", "message"),
    [
        (torch.arange(5), (2, 5), "length=5 needs a text of at least 6 tokens, the window and the token after it; "
                                  "this one has 5. Nearest: length=4."),
        (torch.arange(0), (2, 5), "length=5 needs a text of at least 6 tokens, the window and the token after it; "
                                  "this one has 0."),
        (torch.arange(5), (0, 2), "batch=0 must be at least 1. Nearest: 1."),
        (torch.arange(5), (1, 0), "length=0 must be at least 1. Nearest: 1."),
        (torch.ones(5), (1, 2), "data of shape (5,) and type torch.float32 must be int64 tokens of shape (n,)."),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_made_is_refused(tokens, sizes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        get_batch(tokens, *sizes, torch.Generator())


# the base model


@pytest.mark.slow
def test_training_goes_clearly_below_what_character_frequencies_allow(tmp_path):
    base = load_or_train_base_model(recipe=Recipe(steps=80, batch=8, length=64), cache=tmp_path)
    assert base.unigram_entropy == pytest.approx(3.18, abs=0.01)
    assert base.loss < base.unigram_entropy - 1


def test_unigram_entropy_of_equally_frequent_characters_is_the_logarithm_of_their_number():
    assert unigram_entropy("abcdabcd") == pytest.approx(math.log(4))
    assert unigram_entropy("aaaa") == 0


def test_the_cache_gives_the_same_model_back_without_training(tmp_path):
    first, second = quick(tmp_path), quick(tmp_path)
    assert (first.trained, second.trained) == (True, False)
    assert (first.loss, first.path) == (second.loss, second.path)
    assert same(weights_of(first), weights_of(second))
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]


def test_the_base_model_is_read_only(tmp_path):
    for base in (quick(tmp_path), quick(tmp_path)):
        assert not any(parameter.requires_grad for parameter in base.model.parameters())
        assert not base.model.training


def test_a_seed_decides_everything_whatever_was_drawn_before(tmp_path):
    torch.manual_seed(1)
    first = quick(tmp_path / "a")
    torch.manual_seed(2)
    second = quick(tmp_path / "b")
    assert same(weights_of(first), weights_of(second))
    other = quick(tmp_path / "a", recipe=Recipe(steps=2, batch=2, length=8, seed=1))
    assert not same(weights_of(first), weights_of(other))


def test_the_callers_random_state_and_threads_stay_as_they_were(tmp_path):
    for _ in range(2):
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        quick(tmp_path)
        assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    "other",
    [
        {"spec": GptSpec(width=8, blocks=1, heads=1, context=16)},
        {"recipe": Recipe(steps=1, batch=2, length=8)},
        {"text": "another world. " * 9},
    ],
)
def test_another_shape_recipe_or_text_is_another_model(tmp_path, other):
    assert quick(tmp_path).path != quick(tmp_path, **other).path
    assert quick(tmp_path).trained is False


def test_tied_tables_are_kept_once(tmp_path):
    spec = GptSpec(width=8, blocks=1, heads=2, context=16, tied=True)
    first, second = quick(tmp_path, spec), quick(tmp_path, spec)
    assert not second.trained
    assert same(weights_of(first), weights_of(second))
    assert second.model.head.weight is second.model.tokens.weight


def truncated(path):
    path.write_bytes(path.read_bytes()[:-5])


def emptied(path):
    path.write_bytes(b"")


def another_kind_of_file(path):
    path.write_bytes(b"\x80\x04not a model" * 99)


def a_flipped_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def rewritten(path, change, told=None):
    with safe_open(path, framework="pt") as file:
        kept = file.metadata()
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata=kept if told is None else told)


def a_renamed_parameter(path):
    rewritten(path, lambda weights: weights.update({"other.weight": weights.pop("head.weight")}))


def another_shape(path):
    rewritten(path, lambda weights: weights.update({"head.weight": weights["head.weight"].T.contiguous()}))


def another_type(path):
    rewritten(path, lambda weights: weights.update({"head.weight": weights["head.weight"].double()}))


def other_values(path):
    rewritten(path, lambda weights: weights["head.weight"].add_(1))


def no_hash(path):
    rewritten(path, lambda weights: None, told={})


def the_wrong_hash(path):
    rewritten(path, lambda weights: None, told={"made_from": "0" * 64, "loss": "0x1p0", "digest": "0" * 64})


def another_loss(path):
    with safe_open(path, framework="pt") as file:
        told = file.metadata() | {"loss": (0.0).hex()}
    rewritten(path, lambda weights: None, told=told)


BROKEN = {
    truncated: "it cannot be read",
    emptied: "it cannot be read",
    another_kind_of_file: "it cannot be read",
    a_flipped_bit: "its content is not what was written",
    a_renamed_parameter: "it has other parameters than the model: head.weight, other.weight",
    another_shape: "head.weight is torch.float32 of shape (8, 44) and must be torch.float32 of shape (44, 8)",
    another_type: "head.weight is torch.float64 of shape (44, 8) and must be torch.float32 of shape (44, 8)",
    other_values: "its content is not what was written",
    no_hash: "it was not made from this shape, recipe and text",
    the_wrong_hash: "it was not made from this shape, recipe and text",
    another_loss: "its content is not what was written",
}


@pytest.mark.parametrize("spoil", BROKEN, ids=lambda spoil: spoil.__name__)
def test_a_cache_that_cannot_be_trusted_is_trained_anew_with_a_warning(tmp_path, spoil):
    first = quick(tmp_path)
    spoil(first.path)
    with pytest.warns(UserWarning, match=re.escape(BROKEN[spoil])) as told:
        second = quick(tmp_path)
    assert len(told) == 1
    assert str(told[0].message).startswith(f"{first.path} is not used: ")
    assert second.trained
    assert same(weights_of(first), weights_of(second))
    assert not quick(tmp_path).trained


def test_a_folder_in_the_caches_place_is_left_alone_and_the_model_is_there_all_the_same(tmp_path):
    wanted = quick(tmp_path / "a").path.name
    (tmp_path / "b" / wanted).mkdir(parents=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert quick(tmp_path / "b").trained
    assert [("is not used" in str(each.message), "cannot be written" in str(each.message)) for each in told] == [
        (True, False), (False, True),
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "b").iterdir()] == [wanted]


def test_a_cache_folder_that_cannot_be_made_costs_a_warning_only(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert quick(tmp_path / "file" / "cache").trained


def test_a_write_that_fails_midway_leaves_the_old_file_and_no_scraps(tmp_path, monkeypatch):
    first = quick(tmp_path)
    before = first.path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weights_file.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        weights_file.write(first.path, weights_of(first), made_from="x", loss=1.0)
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]
    assert first.path.read_bytes() == before


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"spec": GptSpec(vocab=43)}, "vocab=43 must be the 44 characters of the alphabet. Nearest: 44."),
        ({"text": "Ada"}, "character 'A' at position 0 is outside"),
        ({"text": "ada"}, "length=8 needs a text of at least 9 tokens"),
        ({"recipe": Recipe(length=17)}, "17 tokens exceed the context of 16."),
    ],
)
def test_what_cannot_be_trained_is_refused_and_nothing_is_kept(tmp_path, asked, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quick(tmp_path, **asked)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"^steps=0 must be at least 1\. Nearest: 1\.$"):
        Recipe(steps=0)


def test_the_cache_folder_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pipesim"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == base_model.Path.home() / ".cache" / "pipesim"


def test_the_cached_model_computes_what_the_trained_one_does(tmp_path):
    first, second = quick(tmp_path), quick(tmp_path)
    tokens = torch.arange(16)[None]
    assert torch.equal(first.model(tokens), second.model(tokens))
    assert isinstance(second.model, Gpt)
