"""The guards on their own: time, repeats, the history's budget, a server that cuts the prompt."""

import pytest

from hello_react.guards import Deadline, History, Repeats, WindowWatch, whole_number


def history(budget):
    return History(budget, str, lambda entry, share: entry[: int(len(entry) * share)])


def test_a_deadline_is_none_or_counts_down_to_zero():
    assert Deadline(None).left is None
    assert not Deadline(None).passed
    assert Deadline(0).passed
    assert 50 < Deadline(60).left <= 60
    for wrong in (-1, "5", float("nan"), True):
        with pytest.raises(ValueError, match="time_limit"):
            Deadline(wrong)


def test_whole_numbers_only():
    assert whole_number("n", 3, 1) == 3
    for wrong in (0, 1.0, "3", None, True):
        with pytest.raises(ValueError, match="n must be a whole number of at least 1"):
            whole_number("n", wrong, 1)


def test_repeats_need_the_same_call_and_the_same_result():
    guard = Repeats()
    assert guard.seen("Search", "a  b", "x") == 1
    assert guard.seen("Search", "a b\n", "x") == 2
    assert guard.seen("Search", "a b", "y") == 1
    assert guard.seen("Lookup", "a b", "x") == 1


def test_the_history_drops_old_steps_in_one_block_with_room_to_spare():
    kept = history(100)
    dropped = [kept.add("x" * 80) for _ in range(12)]  # 20 estimated tokens each
    assert dropped == [0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0]
    assert (kept.dropped, len(kept.entries)) == (8, 4)


def test_one_entry_over_the_budget_is_cut():
    kept = history(100)
    assert kept.add("y" * 4000) == 1
    assert len(kept.entries[0]) == 200
    assert kept.add("x" * 40) == 0


def test_the_newest_entry_stays_whole_if_it_fits_alone():
    kept = history(100)
    assert [kept.add("x" * 80), kept.add("y" * 360)] == [0, 1]  # 20 and 90 estimated tokens
    assert kept.entries == ["y" * 360]


def test_shrinking_takes_half_and_ends_at_nothing():
    kept = history(1000)
    assert kept.shrink() == 0
    for _ in range(4):
        kept.add("x" * 40)
    assert kept.shrink() == 2
    assert kept.shrink() == 1
    assert kept.shrink() == 1  # the last entry is cut
    assert kept.entries[0] == "x" * 20


def test_a_cut_prompt_is_told_once():
    watch = WindowWatch()
    assert [watch.suspicion(*step) for step in [(1000, 300), (5000, 1500), (8000, 2048)]] == [None] * 3
    assert "2,050 prompt tokens" in watch.suspicion(12_000, 2_050)
    assert watch.suspicion(20_000, 2_050) is None


def test_counts_that_no_window_has_are_no_suspicion():
    watch = WindowWatch()
    assert [watch.suspicion(characters, 7) for characters in (1000, 5000, 9000)] == [None] * 3


def test_growing_counts_unknown_counts_and_shorter_prompts_are_no_suspicion():
    watch = WindowWatch()
    assert [
        watch.suspicion(*step) for step in [(1000, 300), (2000, None), (2000, 600), (900, 250), (1000, 250)]
    ] == [None] * 5
