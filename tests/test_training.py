"""The recipe of the adapter: made-up runs that are right by construction, and a training of a few steps."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path

import pytest

from hello_react.errors import HelloReactError
from hello_react.local import fetch_weights
from hello_react.local.training import evaluate, phrases, plans, unseen
from hello_react.local.training.kits import Kit
from hello_react.local.training.plans import NOT_FOUND, PLANS, Run
from hello_react.local.training.trajectories import groups
from hello_react.local.training.world import Subject, World, chosen
from hello_react.parser import Action, Finish, parse
from hello_react.toolbox.calculator import calculate
from hello_react.tools import ToolExecutor


def runs(count: int, seed: int = 5, held_out: bool = False) -> list[Run]:
    return [run for group in itertools.islice(groups(seed, held_out=held_out), count) for run in group.runs]


def plain_script(world: World) -> plans.Script:
    tools = ToolExecutor()
    tools.register_tool("Search", "Finds an article.", world.encyclopedia.search)
    tools.register_tool("Calculator", "Calculates.", calculate)
    return plans.Script(world, Kit(tools, "Search", "", "Calculator", is_encyclopedia=True))


@pytest.fixture(scope="module")
def many() -> list[Run]:
    return runs(180)


def test_the_same_seed_gives_the_same_runs() -> None:
    first, again, other = runs(6), runs(6), runs(6, seed=6)
    assert [run.turns for run in first] == [run.turns for run in again]
    assert [run.question for run in first] != [run.question for run in other]


def test_every_reply_is_read_as_the_move_that_was_meant(many: list[Run]) -> None:
    for run in many:
        *steps, last = run.turns
        calls = (Action(*call[:2]) for call in run.replay)  # those of slips are not learnt
        for turn in steps:
            assert parse(turn.reply, run.tools.names).move in calls
        assert parse(last.reply, run.tools.names).move == Finish(run.answer)


def test_a_prompt_only_grows_at_its_end_and_shows_the_tools_as_they_are(many: list[Run]) -> None:
    for run in many:
        assert run.tools.describe() in run.turns[0].prompt
        for earlier, later in itertools.pairwise(run.turns):
            assert later.prompt.startswith(earlier.prompt + earlier.reply + "\nObservation: ")


def test_all_kinds_of_questions_come(many: list[Run]) -> None:
    assert {run.kind for run in many} == set(PLANS)
    assert any(run.answer == NOT_FOUND for run in many)
    assert any(run.conversation for run in many)


def test_a_comparison_is_the_calculators_to_judge(many: list[Run]) -> None:
    judged = [run for run in many if run.answer in ("Yes", "No") and re.search("[<>]", run.replay[-1][1])]
    assert {run.kind for run in judged} >= {"which", "yes or no"}
    for run in judged:
        _, expression, result = run.replay[-1]
        assert calculate(expression) == result == {"Yes": "true", "No": "false"}[run.answer]


def test_the_input_of_a_tool_is_copied_from_the_question_in_the_order_of_its_parameters() -> None:
    """What the tables spell or order otherwise can't be learnt: it was most of the loss at these inputs."""
    called = [run for run in runs(150) if run.kind == "tool"]
    objects = 0
    for run in called:
        (name, given, seen), *_ = run.replay
        tool = next(tool for tool in run.tools if tool.name == name)
        if len(tool.parameters) < 2:
            assert given in run.question
            continue
        objects += 1
        values = json.loads(given)
        assert [one.name for one in tool.parameters if one.name in values] == list(values)
        assert all(value in run.question for value in values.values() if isinstance(value, str))
        assert run.answer == seen
    assert objects > 20


def test_what_is_searched_for_is_copied_from_the_question(many: list[Run]) -> None:
    """Full names for parts of them, or another case, had to be known by heart; in the order of the question."""
    asked = [run for run in many if run.kind in ("reading", "two facts", "mentioned", "which", "missing")]
    known = [run for run in asked if run.replay[0][1] not in run.question]
    assert len(asked) > 100
    assert len(known) <= 0.02 * len(asked)  # "Tom Sawyer's aunt"
    for run in (run for run in asked if run.kind == "which"):
        places = [run.question.find(given) for tool, given, _ in run.replay if tool == run.replay[0][0]]
        found = [place for place in places if place >= 0]
        assert found == sorted(found)


def test_an_answer_from_an_article_has_no_small_word_before_it(many: list[Run]) -> None:
    read = [run for run in many if run.kind in ("reading", "mentioned")]
    titles = [one for one in (run.answer for run in read) if re.match("(?:The|An?) [A-Z]", one)]
    assert len(titles) < 0.05 * len(read)
    assert not [run for run in read if re.match("(?:the|[Aa]bout|an? (?!.*(th|half|few)$)) ", run.answer)]


@pytest.mark.parametrize(
    ("answer", "short"),
    [
        ("the Alps", "Alps"),
        ("The Gotthard Tunnel", "Gotthard Tunnel"),
        ("The Night Watch", "The Night Watch"),
        ("about 57 km", "57 km"),
        ("57", "57 km"),
        ("1.2 million", "1.2 million km²"),
        ("300", "more than 300"),
        ("about an eighth", "an eighth"),
    ],
)
def test_an_answer_from_an_article_is_cut_as_all_are(answer: str, short: str) -> None:
    text = (
        "The Gotthard Tunnel, about 57 km long, is under the Alps. Its museum shows The Night Watch and more than "
        "300 others to about an eighth of the visitors from an area of 1.2 million km²."
    )
    assert plans._short(answer, Subject("Tunnel", "building", {}, text)) == short


def test_a_name_is_called_as_the_question_writes_it() -> None:
    script = plain_script(World(random.Random(1), held_out=False))
    kepler = next(one for one in script.world.real if one.title == "Johannes Kepler")
    seine = next(one for one in script.world.real if one.title == "Seine")
    for question, subject, called in (
        ("When was Johannes Kepler born?", kepler, "Johannes Kepler"),
        ("when was johannes kepler born", kepler, "johannes kepler"),
        ("KEPLER'S BIRTH", kepler, "KEPLER"),
        ("Who found the laws of planets?", kepler, "Johannes Kepler"),
        ("How long is the Seine?", seine, "the Seine"),
        ("HOW LONG IS THE SEINE", seine, "the SEINE"),
        ("Seine length", seine, "Seine"),
        ("How long is it?", seine, "the Seine"),
    ):
        script.question = question
        assert script.called(subject) == called
    script.question = "Where is the old town hall?"
    assert [script.called(name) for name in ("Town Hall", "Hall of Fame")] == ["town hall", "Hall of Fame"]


def test_the_sentence_that_tells_a_fact_holds_it() -> None:
    for subject in World(random.Random(2), held_out=False).subjects:
        assert subject.facts.keys() == subject.told.keys()
        assert all(value in subject.told[name] for name, value in subject.facts.items())


def test_lists_and_conversions_are_calculated_right() -> None:
    world, counted, units = World(random.Random(1), held_out=False), set(), set()
    for _ in range(80):
        script = plain_script(world)
        plans._list(script)
        _, given, result = script.run().replay[0]
        numbers = re.findall(r"[\d.]+", given.partition(" / ")[0])
        assert all(re.search(rf"(?<![\d.]){re.escape(one)}(?!\d)", script.question) for one in numbers)
        if given.endswith(f") / {len(numbers)}"):
            assert float(result) == pytest.approx(sum(map(float, numbers)) / len(numbers))
            counted.add(len(numbers))
    assert counted >= {2, 3, 4, 5}
    for _ in range(80):
        script = plain_script(world)
        plans._conversion(script)
        _, given, _ = script.run().replay[0]
        if "hours" in script.question and script.answer.endswith(" seconds"):
            assert given.endswith(" * 60 * 60") or "days" in script.question
        unit = script.answer.split(" ")[-1]
        assert unit.casefold() in script.question.casefold()
        units.add(unit)
    assert len(units) > 10


def test_word_problems_have_answers_that_make_sense() -> None:
    asked = [run for run in runs(120, seed=8) if run.kind == "sum" and " " in run.answer]
    values = [(run.answer.partition(" "), run.question) for run in asked]
    wrong = [
        (value, question)
        for (value, _, unit), question in values
        if float(value) <= 0 and not unit.startswith(("degrees", "percent"))
    ]
    assert (len(asked) > 60, wrong) == (True, [])
    halves = [run for run in runs(250, seed=9) if run.kind == "sum" and " and a half " in run.question]
    assert halves
    for run in halves:
        assert ".5" in run.turns[0].reply


def test_two_things_are_told_apart_by_their_whole_names() -> None:
    world = World(random.Random(6), False)
    first, second = (
        next(one for one in world.real if one.title == name) for name in ("Thailand", "Malaysia")
    )
    script = plain_script(world)
    script.question = "Thais and Malaysians: Thailand plus Malaysia makes how many people?"
    assert plans._ordered(script, first, second) == (first, second)
    assert plans._ordered(script, second, first) == (first, second)


def test_no_filler_is_looked_up() -> None:
    question = "does anybody know how many people live in ningbo, please tell me exactly"
    assert plans._CONTENT_WORD.findall(question) == ["people", "live", "ningbo"]


def test_factors_and_summands_stand_in_the_order_of_the_question() -> None:
    for asked, expression, ordered in (
        ("{s} crates of {t}", "{t} * {s}", "{s} * {t}"),
        ("{t} feet in inches", "12 * {t}", "{t} * 12"),
        ("eight pints, {s} gallons", "{s} * 8", "8 * {s}"),
        ("{a} and {b} more", "({b} + {a}) / 2", "({a} + {b}) / 2"),
        ("{t} days, {s} a day", "{a} - {s} * {t}", "{a} - {t} * {s}"),
        ("{b} less {a}", "{a} / {b} * {s}", "{a} / {b} * {s}"),
        ("{b} and {a}", "{a} - {b} + {s}", "{a} - {b} + {s}"),
        ("{b}, {a}", "{a} + {b} ^ 2", "{a} + {b} ^ 2"),
    ):
        assert plans._in_order(expression, asked) == ordered


def test_what_is_held_out_is_not_trained_on(many: list[Run]) -> None:
    apart = runs(60, held_out=True)
    kinds = ("fact", "sum", "missing", "age", "older")
    assert not {run.question for run in many if run.kind in kinds} & {run.question for run in apart}
    for table in (
        phrases.SUMS,
        phrases.MISSING,
        phrases.OUT_OF_REACH,
        phrases.SMALL_TALK,
        phrases.QUALITY_ASKED,
        *(attribute.asked for attribute in phrases.ATTRIBUTES.values()),
    ):
        training, testing = chosen(table, False), chosen(table, True)
        assert training
        assert testing
        assert not set(training) & set(testing)
    trained = {name for line in phrases.TOOLS for name in line[0].split(",")}
    assert not trained & {one.name for one in unseen.UNSEEN}


def test_the_real_questions_are_not_among_the_made_up_ones(many: list[Run]) -> None:
    assert not {question.text for question in evaluate.out_of_reach()} & set(phrases.OUT_OF_REACH)
    assert [len(evaluate.real()), len(evaluate.unseen()), len(evaluate.out_of_reach())] == [100, 20, 50]


@pytest.mark.parametrize(
    ("answer", "wanted", "right"),
    [
        ("8,849 m", "8849", True),
        ("It is 8849 m.", "8,849", True),
        ("88490 m", "8849", False),
        (None, "x", False),
        ("Fyodor Dostoevsky", "Dostoevsky", True),
        ("0.5", "5", False),
        ("-34 °C", "-34", True),
        ("Yes", "No/yes", True),
    ],
)
def test_an_answer_is_compared_by_its_words(answer: str | None, wanted: str, right: bool) -> None:
    assert evaluate.holds(answer, wanted) is right


@pytest.mark.model
@pytest.mark.timeout(900)
def test_a_few_steps_lower_the_loss_and_leave_a_file_that_the_server_loads(tmp_path: Path) -> None:
    for package in ("torch", "tokenizers"):
        pytest.importorskip(package)
    gguf = pytest.importorskip("gguf")
    try:
        weights = fetch_weights()
    except HelloReactError as error:
        pytest.skip(str(error))
    from hello_react.local import LocalServer
    from hello_react.local.training import export, train

    train.train(tmp_path, steps=10, every=5)
    train.train(tmp_path, steps=30, every=5)  # goes on from step 10
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in log if "loss" in line}
    assert list(losses) == [10, 20, 30]
    assert losses[30] < 0.8 * losses[10]
    export.main([str(tmp_path / "checkpoint.pt"), str(tmp_path / "adapter.gguf")])
    assert (tmp_path / "adapter.gguf").stat().st_size < 6_000_000
    with LocalServer(weights, tmp_path / "adapter.gguf") as server:
        assert server.running
    further = tmp_path / "further"
    further.mkdir()
    train.train(further, steps=10, every=5, start=tmp_path / "adapter.gguf", highest=1e-4)
    first = json.loads((further / "log.jsonl").read_text().splitlines()[0])
    assert first["loss"] < 0.8 * losses[10]  # it goes on from that file
    mixed = [
        str(further / "checkpoint.pt"),
        str(tmp_path / "mixed.gguf"),
        "--mix",
        str(tmp_path / "adapter.gguf"),
    ]
    values = {}
    for name, share in (("begun", "0"), ("between", "0.5"), ("ended", "1")):
        export.main([*mixed, "--share", share])
        tensor = gguf.GGUFReader(tmp_path / "mixed.gguf").tensors[1]
        values[name] = gguf.dequantize(tensor.data, tensor.tensor_type)
    assert values["between"] == pytest.approx((values["begun"] + values["ended"]) / 2, abs=1e-3)
    assert values["begun"] != pytest.approx(values["ended"], abs=1e-6)


def test_a_training_or_an_export_without_its_files_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("torch", "gguf", "tokenizers"):
        pytest.importorskip(package)
    from hello_react.local.training import export, train

    missing = str(tmp_path / "none.gguf")
    for command in (
        lambda: train.main([str(tmp_path), "--start", missing]),
        lambda: export.main([missing, str(tmp_path / "adapter.gguf")]),
        lambda: export.main([__file__, str(tmp_path / "adapter.gguf"), "--mix", missing]),
    ):
        with pytest.raises(SystemExit):
            command()
        assert f"there is no file {missing}" in capsys.readouterr().err


def test_a_tree_of_turns_is_what_the_turns_are_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path of the tree is one turn's own text, and what a token sees is what comes before it there."""
    pytest.importorskip("torch")
    gguf = pytest.importorskip("gguf")
    try:
        reader = gguf.GGUFReader(fetch_weights())
    except HelloReactError as error:
        pytest.skip(str(error))
    from hello_react.local.training import train
    from hello_react.local.training.model import tokenizer

    monkeypatch.setattr(train, "MOST", 100_000)
    words = tokenizer(reader)
    some = runs(1)[:3]
    grown = train.tree(words, some, full=100_000)
    seen, depths = grown.seen(), grown.depths()
    texts = set()
    for place, token, _ in grown.targets:
        path = [node for node, is_seen in enumerate(seen[place].tolist()) if is_seen]
        assert [int(depths[node]) for node in path] == list(range(len(path)))
        texts.add(words.decode([*(grown.tokens[node] for node in path), token], skip_special_tokens=False))
    assert grown.turns == sum(len(run.turns) for run in some)
    for run in some:
        for turn in run.turns:
            assert train.BEFORE + turn.prompt + train.BETWEEN + turn.reply + train.AFTER in texts
    assert train.tree(words, some, full=10).turns == len(some[0].turns)


@pytest.mark.model
def test_the_chat_template_and_the_tokens_are_those_of_the_server() -> None:
    pytest.importorskip("torch")
    gguf = pytest.importorskip("gguf")
    import requests

    try:
        weights = fetch_weights()
    except HelloReactError as error:
        pytest.skip(str(error))
    from hello_react.local import LocalServer
    from hello_react.local.training import train
    from hello_react.local.training.model import tokenizer

    text = 'What\'s  12,345.67 km² of łódź?\n\nOk\tit is {"a": 1}[x]\n'
    with LocalServer(weights) as server, requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {server.api_key}"
        address = server.url.removesuffix("/v1")
        message = [{"role": "user", "content": text}]
        prompt = session.post(f"{address}/apply-template", json={"messages": message}, timeout=60).json()[
            "prompt"
        ]
        tokens = session.post(f"{address}/tokenize", json={"content": text}, timeout=60).json()["tokens"]
    assert prompt == train.BEFORE + text + train.BETWEEN
    assert tokens == tokenizer(gguf.GGUFReader(weights)).encode(text).ids
