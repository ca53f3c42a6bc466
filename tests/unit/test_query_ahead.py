"""Reading ahead keeps order, faults and laziness."""

import threading

import pytest

from crossrank.query.ahead import ahead


def test_the_same_pieces_in_the_same_order():
    assert list(ahead(iter(range(100)))) == list(range(100))
    assert list(ahead(iter(()))) == []
    assert list(ahead(iter([None, 0, ""]))) == [None, 0, ""]


def test_one_piece_ahead_and_not_more():
    made = []

    def pieces():
        for i in range(10):
            made.append((i, threading.current_thread().name))
            yield i

    stream = ahead(pieces())
    assert next(stream) == 0
    stream.close()  # waits for the piece that is being made
    assert [i for i, _ in made] in ([0], [0, 1])
    assert all(name.startswith("crossrank-ahead") for _, name in made)


def test_a_fault_comes_where_its_piece_would():
    def pieces():
        yield 1
        raise ValueError("damaged")

    stream = ahead(pieces())
    assert next(stream) == 1
    with pytest.raises(ValueError, match="damaged"):
        next(stream)
