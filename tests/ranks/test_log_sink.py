import io
import os

from ranks.log_sink import LogSink


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


def test_lines_go_through():
    stream = io.StringIO()
    sink = LogSink(stream)
    sink.write("a line\n")
    sink.flush()
    assert (stream.getvalue(), sink.num_lost) == ("a line\n", 0)


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else():
    sink = LogSink(FullDisk())
    assert sink.write("a line\n") == 7
    assert sink.num_lost == 1


def test_a_pipe_whose_reader_has_gone_is_survived():
    reader, writer = os.pipe()
    os.close(reader)
    with io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True) as stream:
        sink = LogSink(stream)
        for _ in range(3):
            sink.write("a line\n")
            sink.flush()
        assert sink.num_lost == 3


def test_a_closed_stream_is_survived():
    stream = io.StringIO()
    stream.close()
    sink = LogSink(stream)
    sink.write("a line\n")
    sink.flush()
    assert sink.num_lost >= 1
