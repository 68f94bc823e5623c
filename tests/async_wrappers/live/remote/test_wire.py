"""Records and handshakes: what is written is read, and whatever else comes is refused in one sentence.

Set HYPOTHESIS_CASES to try more or fewer hostile records than the 150 of every day; 100,000 take a quarter of an hour.
"""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.live.memory.exchange import ticket_of
from async_wrappers.live.remote.handshake import (
    ClientHandshake,
    Declared,
    Hello,
    Refused,
    ServerHandshake,
    Welcome,
    describe,
    space_of,
)
from async_wrappers.live.remote.wire import (
    HEADER,
    LARGEST,
    MAGIC,
    SENTENCE,
    VERSION,
    Answers,
    Kind,
    RecordReader,
    TicketRecords,
    WireError,
    checked,
    encoded,
    printable,
)
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action

CASES = int(os.environ.get("HYPOTHESIS_CASES", "150"))
PICTURE = spaces.Box(0, 255, (4, 3), np.uint8)
NESTED = spaces.Dict(
    {
        "picture": PICTURE,
        "joints": spaces.Box(np.array([-1.0, -2.0]), np.array([1.0, np.inf]), dtype=np.float64),
        "tool": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 5]), spaces.MultiBinary((2, 2))]),
    }
)
HELLO = Hello(NESTED, spaces.Discrete(4), None, False, 0, 1, 2, "a session")
WELCOME = Welcome("a server", 2)


NO_CLAIMS = Declared()


def shake(
    hello: Hello = HELLO, declared: Declared = NO_CLAIMS, ours: bytes | None = None, theirs: bytes | None = None
) -> tuple[ClientHandshake, ServerHandshake]:
    """Let two ends shake hands, byte by byte, and return them."""
    client, server = ClientHandshake(hello, ours), ServerHandshake(declared, WELCOME, theirs)
    for byte in client.begin():
        challenge = server.receive(bytes([byte]))
    for byte in challenge:
        proof = client.receive(bytes([byte]))
    for byte in proof:  # and the hello
        server.receive(bytes([byte]))
    for byte in server.welcome():
        client.receive(bytes([byte]))
    return client, server


@pytest.mark.parametrize("token", [None, b"a secret"])
def test_two_ends_that_agree_shake_hands(token: bytes | None) -> None:
    client, server = shake(ours=token, theirs=token)
    assert client.welcome == WELCOME
    assert server.hello == HELLO
    assert client.wants() == server.wants() == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        (b"one", b"another", "token must be that of the server, got another one"),
        (None, b"another", "token must be given, as the server asks for one, got None"),
        (b"one", None, "token must be None, or the server be started with the same one: it has none"),
    ],
)
def test_ends_with_different_tokens_refuse_each_other(ours: bytes | None, theirs: bytes | None, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        shake(ours=ours, theirs=theirs)


def test_a_server_that_cannot_prove_its_token_is_refused() -> None:
    client, server = ClientHandshake(HELLO, b"one"), ServerHandshake(Declared(), WELCOME, b"one")
    server.receive(client.begin()[: HEADER.size])
    liar = encoded(Kind.CHALLENGE, json.dumps({"nonce": "0" * 32, "token": True}).encode())
    assert feed(client, liar)
    welcome = {"server": "s", "workers": 2, "version": "0", "proof": "0" * 64}
    with pytest.raises(Refused, match="token must be that of the server"):
        feed(client, encoded(Kind.WELCOME, json.dumps(welcome).encode()))


def test_a_proof_serves_neither_end_a_second_time_nor_the_other_end() -> None:
    proofs = set()
    for _ in range(2):
        client, server = ClientHandshake(HELLO, b"one"), ServerHandshake(Declared(), WELCOME, b"one")
        proof = feed(client, feed(server, client.begin()))
        feed(server, proof)
        size = HEADER.size + checked(proof, {Kind.PROOF: (0, 1000)}).size
        proofs |= {json.loads(each[HEADER.size :])["proof"] for each in (proof[:size], server.welcome())}
    assert len(proofs) == 4


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (Declared(action_space=spaces.Discrete(5)), r"action_space must be Discrete\(5\) for this server's .*Discrete"),
        (Declared(observation_space=PICTURE), r"observation_space must be Box.* got Dict"),
        (Declared(extras=spaces.Dict({"v": spaces.Discrete(2)})), "extras must be Dict.* got None"),
        (Declared(features=PICTURE), "features must be Box.* for this server's policies, which have memory"),
    ],
)
def test_a_server_refuses_spaces_that_are_not_those_of_its_policies(declared: Declared, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        shake(declared=declared)


def test_a_server_takes_equal_spaces_whatever_their_order_and_the_sign_of_their_zeros() -> None:
    arm, hand = spaces.Box(-0.0, 1, (2,), np.float32), spaces.Discrete(3)
    again = spaces.Box(0.0, 1, (2,), np.float32)
    said = spaces.Dict(OrderedDict(hand=hand, arm=arm))
    declared = spaces.Dict(OrderedDict(arm=again, hand=hand))
    assert said == declared
    Declared(observation_space=declared).refuse(Hello(said, hand, None, False, 0, 0, 1, "a session"))
    # records hold entries in the order of the loop's space
    assert list(space_of(describe(said)).spaces) == ["hand", "arm"]


def test_a_server_refuses_a_run_with_more_workers_than_it_has() -> None:
    with pytest.raises(Refused, match="workers must be at most 2, as many as the server has, got 3"):
        shake(Hello(NESTED, spaces.Discrete(4), None, False, 0, 1, 3, "a session"))


def test_a_refusal_reaches_the_loop_with_whether_to_try_again() -> None:
    client = ClientHandshake(HELLO)
    with pytest.raises(Refused, match="all workers are busy") as error:
        feed(client, ServerHandshake.refusal(Refused("all workers are busy", again=True)))
    assert error.value.again


def test_a_space_too_long_to_describe_is_refused_with_the_remedy() -> None:
    bounds = np.arange(200_000, dtype=np.float64)
    wide = spaces.Box(bounds, bounds + 1, dtype=np.float64)
    with pytest.raises(ValueError, match="use bounds that are equal for all numbers of a Box"):
        ClientHandshake(Hello(wide, PICTURE, None, False, 0, 0, 1, "s"))


def feed(end: ClientHandshake | ServerHandshake, data: bytes) -> bytes:
    """Give an end as many bytes at a time as it wants; return its answer."""
    said = b""
    while data and (wants := end.wants()):
        said, data = end.receive(data[:wants]), data[wants:]
    return said


def test_spaces_are_made_without_a_touch_of_the_processs_filters_of_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    description = json.loads(json.dumps(describe(NESTED)))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "catch_warnings", None)  # threads of a server do this side by side
        assert describe(space_of(description)) == description
        monkeypatch.undo()
    assert told == []


leaves = st.one_of(
    st.builds(
        lambda shape, dtype, low: spaces.Box(low, low + 1, shape, dtype),
        st.lists(st.integers(0, 4), max_size=3).map(tuple),
        st.sampled_from([np.float32, np.float64, np.int16, np.uint8]),
        st.integers(0, 9),
    ),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-5, 5)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 9), min_size=1, max_size=4)),
    st.builds(spaces.MultiBinary, st.integers(1, 9)),
)
nested = st.recursive(
    leaves,
    lambda each: st.one_of(
        st.lists(each, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.text(max_size=3), each, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=6,
)


@settings(max_examples=CASES // 3 + 1, deadline=None)
@given(nested)
def test_a_space_comes_back_from_its_description(space: gym.Space[Any]) -> None:
    text = json.dumps(describe(space))
    again = space_of(json.loads(text))
    assert again.contains(space.sample())
    assert describe(again) == json.loads(text)


@settings(max_examples=CASES // 3 + 1, deadline=None)
@given(nested, st.integers(0, 2**31), st.tuples(*[st.integers(0, 2**62)] * 4), st.booleans())
def test_tickets_and_answers_come_back_from_their_records(
    space: gym.Space[Any], seed: int, numbers: tuple[int, int, int, int], eval_mode: bool
) -> None:
    space.seed(seed)
    value, left = space.sample(), {"value": np.float32(0.5)}
    ticket = ticket_of(seed, *numbers, eval_mode)
    tickets = TicketRecords(space)
    record = tickets.record()
    record.show(value)
    record.order(ticket, seed)
    assert len(record.data) == tickets.record_bytes
    assert record.is_whole(tickets.record_bytes)
    assert checked(record.data, tickets.sizes).number == ticket.number
    again = tickets.record()
    again.data[:] = record.data
    told, shown = again.read()
    assert told == ticket
    assert same(shown, value)
    answers = Answers(space, spaces.Dict({"value": spaces.Box(0, 1, ())}))
    sent = bytes(answers.record().write(ticket, numbers, value, left))
    assert len(sent) == answers.answer_bytes
    assert sent.startswith(answers.begins(ticket, seed))
    assert checked(sent, answers.sizes).times == numbers
    answer = answers.record()
    answer.data[: len(sent)] = sent
    action, extras = answer.read()
    assert answer.times == numbers
    assert same(action, value)
    assert extras == left


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return bool(one.keys() == other.keys()) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (b"GET / HTTP/1.1\r\n" + bytes(80), "it is no end of async_wrappers"),
        (HEADER.pack(MAGIC, 7, 1, 2, 0, 0, 0, 0, 0, 0), "version 7 of the wire format, and this end version 2"),
        (HEADER.pack(MAGIC, VERSION, 99, 2, 0, 0, 0, 0, 0, 0), "sent a record of kind 99 where KNOCK comes"),
        (HEADER.pack(MAGIC, VERSION, 7, 2, 0, 0, 0, 0, 0, 0), "sent a record ANSWER where KNOCK comes"),
        (HEADER.pack(MAGIC, VERSION, 10, 2**31, 0, 0, 0, 0, 0, 0), "announced 2147483648 bytes in a record KNOCK"),
        (encoded(Kind.KNOCK, pickle.dumps([1, 2])), "sent a record KNOCK that is no JSON"),
        (encoded(Kind.KNOCK, b"[" * 4_000), "sent a record KNOCK that is no JSON"),
        (encoded(Kind.KNOCK, b"[]"), "sent no nonce of the type str where one belongs"),
    ],
)
def test_a_record_that_is_no_knock_is_refused_in_one_sentence(record: bytes, sentence: str) -> None:
    with pytest.raises(WireError, match=sentence):
        feed(ServerHandshake(Declared(), WELCOME), record)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (encoded(Kind.KNOCK, json.dumps({"nonce": "0" * 5_000}).encode()), "announced 5013 bytes in a record KNOCK"),
        (encoded(Kind.HELLO, json.dumps(HELLO.to_json()).encode()), "sent a record HELLO where KNOCK comes"),
    ],
)
def test_whoever_has_not_proven_the_token_has_nothing_large_kept_for_it(record: bytes, sentence: str) -> None:
    with pytest.raises(WireError, match=sentence):
        feed(ServerHandshake(Declared(), WELCOME, b"one"), record)
    server = ServerHandshake(Declared(), WELCOME, b"one")
    feed(server, encoded(Kind.KNOCK, b'{"nonce": "0"}'))
    with pytest.raises(WireError, match="a record HELLO where PROOF comes"):
        feed(server, encoded(Kind.HELLO, json.dumps(HELLO.to_json()).encode()))


def test_a_header_that_announces_two_gigabytes_is_refused_before_anything_is_allocated() -> None:
    tracemalloc.start()
    try:
        reader = RecordReader({Kind.TICKET: (8, LARGEST)})
        with pytest.raises(WireError, match="announced 2000000000 bytes"):
            reader.feed(HEADER.pack(MAGIC, VERSION, Kind.TICKET, 2_000_000_000, 0, 0, 0, 0, 0, 0))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def hello_with(**changed: Any) -> dict[str, Any]:
    return {**HELLO.to_json(), "nonce": "0", **changed}


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        ({"kind": "Box", "dtype": "<f8", "shape": [1 << 20, 1 << 6], "low": "", "high": ""}, "of more than 67108864"),
        ({"kind": "Box", "dtype": "|O8", "shape": [2], "low": "", "high": ""}, "not little-endian numbers"),
        ({"kind": "Box", "dtype": "<f8", "shape": [-2], "low": "", "high": ""}, "described a shape that is none"),
        ({"kind": "Box", "dtype": "<f8", "shape": [2], "low": "!", "high": "!"}, "described a Box that is none"),
        ({"kind": "Box", "dtype": "|u1", "shape": [LARGEST + 1], "low": "", "high": ""}, "of more than 67108864 bytes"),
        ({"kind": "Box", "dtype": "|u1", "shape": [2**70, 2**70], "low": "", "high": ""}, "of more than 67108864"),
        ({"kind": "MultiBinary", "shape": [LARGEST + 1]}, "of more than 67108864 bytes"),
        ({"kind": "MultiBinary", "shape": [1] * 33}, "a shape that is none: it is of at most 32 whole numbers >= 0"),
        ({"kind": "Discrete", "dtype": "<i8", "n": 0, "start": 0}, "described a Discrete that is none"),
        ({"kind": "Graph"}, "of the unknown kind 'Graph'"),
        ({"kind": "Dict", "parts": [[1.5, {}]]}, "not pairs of one name and one space"),
        ({"kind": "Tuple", "parts": [{}] * 9_000_000}, "of more than 67108864 bytes"),
        (["Box"], "sent no kind of the type str"),
    ],
)
def test_a_description_of_no_space_or_of_a_huge_one_is_refused(space: Any, sentence: str) -> None:
    with pytest.raises(WireError, match=sentence):
        space_of(space)


def test_spaces_within_spaces_are_refused_below_sixteen_levels() -> None:
    deep: Any = describe(PICTURE)
    for _ in range(20):
        deep = {"kind": "Tuple", "parts": [deep]}
    with pytest.raises(WireError, match="of more than 16 levels"):
        space_of(deep)


LARGE: dict[str, Callable[[], gym.Space[Any]]] = {
    "uint8": lambda: spaces.Box(0, 255, (60, 1000, 1000), np.uint8),
    "infinite": lambda: spaces.Box(-np.inf, np.inf, (7_000_000,), np.float64),
    "float32": lambda: spaces.Box(-1, 1, (4, 3_000_000), np.float32),
    "discrete": lambda: spaces.MultiDiscrete(np.full((7_000_000,), 3)),
    "binary": lambda: spaces.MultiBinary((8000, 8000)),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_space_of_equal_bounds_comes_back_without_memory_for_them(name: str) -> None:
    space = LARGE[name]()
    description = json.loads(json.dumps(describe(space)))
    Declared(observation_space=space).described  # noqa: B018 - of the space that a server has
    tracemalloc.start()
    try:
        again = space_of(description)
        assert describe(again) == description
        Declared(observation_space=again).refuse(Hello(again, NESTED, None, False, 0, 0, 1, "s"))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (again.shape, again.dtype, str(again)) == (space.shape, space.dtype, str(space))


@settings(max_examples=CASES // 3 + 1, deadline=None)
@given(
    st.sampled_from([np.float32, np.float64, np.int16, np.uint8, np.bool_]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_bounds_without_memory_of_their_own_are_as_good_as_others(
    dtype: Any, shape: tuple[int, ...], is_infinite: bool, seed: int
) -> None:
    of = np.inf if is_infinite and np.dtype(dtype).kind == "f" else 1
    space = spaces.Box(0 if np.dtype(dtype).kind in "bu" else -of, of, shape, dtype)
    again = space_of(json.loads(json.dumps(describe(space))))
    assert again == space
    assert isinstance(again, spaces.Box)
    for name in ("low", "high", "bounded_below", "bounded_above"):
        assert np.array_equal(getattr(again, name), getattr(space, name))
    space.seed(seed)
    value = space.sample()
    assert again.contains(value)
    assert np.array_equal(as_action(again, value), value)
    if value.size and not is_infinite and dtype is not np.bool_:
        value = np.full(shape, 2, dtype)
        assert not again.contains(value)
        with pytest.raises(RefusedAction):
            as_action(again, value)
    assert pickle.loads(pickle.dumps(again)) == space
    counted = spaces.MultiDiscrete(np.full(shape or (2,), 3))
    assert space_of(json.loads(json.dumps(describe(counted)))) == counted


def test_a_space_of_more_spaces_than_the_desk_reads_in_a_moment_is_refused() -> None:
    parts = [describe(spaces.Discrete(2))] * 1_024
    with pytest.raises(WireError, match="described a space of more than 1024 spaces"):
        space_of({"kind": "Tuple", "parts": parts})
    assert len(space_of({"kind": "Tuple", "parts": parts[1:]}).spaces) == 1_023


headers = st.builds(
    lambda *numbers: HEADER.pack(*numbers),
    st.sampled_from([MAGIC, b"AWRQ", bytes(4)]),
    st.sampled_from([VERSION, VERSION, 0, 65535]),
    st.integers(0, 12),
    st.one_of(st.integers(0, 200), st.integers(0, 2**32 - 1)),
    st.integers(0, 2**32 - 1),
    *[st.integers(-(2**63), 2**63 - 1)] * 5,
)
texts = st.text(st.characters(exclude_categories=()), max_size=8)  # surrogates too
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**4000) | st.floats() | texts,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(texts, each, max_size=4),
    max_leaves=8,
)
names = st.sampled_from([*hello_with(), "proof", "token", "server", "reason", "again"])
space_words = st.sampled_from(["kind", "dtype", "shape", "low", "high", "n", "start", "parts"])
odd_spaces = st.dictionaries(space_words, plain | st.sampled_from(["Box", "Dict", "Tuple", "<f4", "|u1", [3]]))
hostile = st.one_of(
    st.binary(max_size=300),
    headers,
    st.tuples(headers, st.binary(max_size=200)).map(b"".join),
    st.builds(
        lambda kind, message: encoded(kind, json.dumps(message).encode()),
        st.sampled_from(list(Kind)),
        st.one_of(plain, st.builds(lambda each: {**hello_with(), **each}, st.dictionaries(names, plain | odd_spaces))),
    ),
    st.builds(lambda kind, message: encoded(kind, pickle.dumps(message)), st.sampled_from(list(Kind)), plain),
)


deep = st.builds(
    lambda begin, depth: begin * depth, st.sampled_from([b"[", b'{"nonce":', b'[{"":']), st.integers(1, 800)
)
answers_of_strangers = st.one_of(
    st.binary(max_size=60),
    deep,
    st.builds(lambda message: json.dumps(message).encode(), plain),
    st.fixed_dictionaries(
        {},
        optional={
            "nonce": texts | st.just("0" * 32) | plain,
            "token": st.booleans() | plain,
            "proof": texts | plain,
            "server": texts | plain,
            "version": texts | plain,
            "workers": st.integers() | plain,
            "reason": texts | plain,
            "again": st.booleans() | plain,
        },
    ).map(lambda message: json.dumps(message).encode()),
)


@settings(max_examples=2 * CASES, deadline=None)
@given(st.lists(answers_of_strangers, min_size=1, max_size=3), st.sampled_from([None, b"one"]), st.booleans())
def test_whatever_a_stranger_answers_is_an_error_of_the_wire_for_the_loops_end(
    answers: list[bytes], token: bytes | None, is_challenged: bool
) -> None:
    client = ClientHandshake(HELLO, token)
    if is_challenged:
        feed(client, encoded(Kind.CHALLENGE, json.dumps({"nonce": "0f", "token": token is not None}).encode()))
    for payload in answers:
        kinds = [kind for kind in client._reader.sizes if kind != Kind.REFUSAL or b"reason" in payload]
        try:
            feed(client, encoded(kinds[0], payload))
        except WireError as error:
            assert 0 < len(str(error)) < 2000
            assert str(error).encode()
            break


@pytest.mark.parametrize("nonce", ["\ud800", "", "0" * 65, "0F", "0f\n", "٣"])
def test_a_nonce_is_of_hexadecimal_digits(nonce: str) -> None:
    said = json.dumps({"nonce": nonce, "token": False}).encode()
    for end, kind in ((ClientHandshake(HELLO), Kind.CHALLENGE), (ServerHandshake(Declared(), WELCOME), Kind.KNOCK)):
        with pytest.raises(WireError, match="sent a nonce that is not of 1 to 64 hexadecimal digits"):
            feed(end, encoded(kind, said))


def test_an_exception_over_a_record_is_one_of_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise OverflowError("of a number\x1b[2J")

    monkeypatch.setattr(ClientHandshake, "_prove", fail)
    with pytest.raises(
        WireError, match=r"sent a record CHALLENGE that this end cannot read: OverflowError: of a number\?"
    ):
        feed(ClientHandshake(HELLO), encoded(Kind.CHALLENGE, b'{"nonce": "0", "token": false}'))


@settings(max_examples=CASES, deadline=None)
@given(st.lists(hostile, min_size=1, max_size=3), st.sampled_from([None, b"one"]), st.integers(0, 400))
def test_hostile_records_are_refused_by_either_end_and_leave_nothing(
    records: list[bytes], token: bytes | None, cut: int
) -> None:
    data = b"".join(records)
    data = data[: len(data) - cut] if cut < len(data) else data
    tracemalloc.start()
    try:
        answer_all(data, token)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def answer_all(data: bytes, token: bytes | None) -> None:
    """Give hostile bytes to both ends, and as tickets and as answers."""
    proven = ServerHandshake(Declared(), WELCOME)
    feed(proven, encoded(Kind.KNOCK, b'{"nonce": "0"}') + encoded(Kind.PROOF, b'{"proof": ""}'))
    for end in (ServerHandshake(Declared(), WELCOME, token), proven, ClientHandshake(HELLO, token)):
        try:
            feed(end, data)
        except WireError as error:
            assert 0 < len(str(error)) < 2000
    for codec in (TicketRecords(NESTED), Answers(NESTED)):
        reader = RecordReader(codec.sizes)
        left = data
        try:
            while left:
                wants = reader.wants()
                assert 0 < wants <= HEADER.size + max(SENTENCE, codec.record_bytes)
                record = reader.feed(left[:wants])
                left = left[wants:]
                if record is not None and record.header.kind == Kind.TICKET:
                    ticket = TicketRecords(NESTED).record()
                    ticket.data[HEADER.size :] = record.payload
                    ticket.read()
        except WireError as error:
            assert 0 < len(str(error)) < 2000


@settings(max_examples=CASES // 3 + 1, deadline=None)
@given(st.binary(max_size=64), st.text(max_size=64))
def test_a_text_of_the_other_end_controls_no_terminal(data: bytes, text: str) -> None:
    for shown in (printable(data), printable(text), printable("\x1b[2J" + text)):
        assert all(each.isprintable() or each == "\n" for each in shown)
