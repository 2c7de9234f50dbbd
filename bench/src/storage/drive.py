# Works with files in one folder, and prints the rates as JSON: FILES MEGABYTES FOLDER.
# What is read is compared with what was written.
import json, os, sys, time

SMALL, BLOCK = 4096, 1 << 20


class Folder:
    """A folder as the kernel shows it."""

    def __init__(self, path):
        self.path = path

    def open(self, name, new):
        return os.open(self.path + name, os.O_RDWR | (os.O_CREAT if new else 0), 0o644)

    def pwrite(self, file, data, at):
        return os.pwrite(file, data, at)

    def pread(self, file, count, at):
        return os.pread(file, count, at)

    def size(self, name):
        return os.stat(self.path + name).st_size

    fsync, close = staticmethod(os.fsync), staticmethod(os.close)

    def mkdir(self, name):
        os.mkdir(self.path + name)

    def unlink(self, name):
        os.unlink(self.path + name)

    def rmdir(self, name):
        os.rmdir(self.path + name)


def rate(count, work):
    begun = time.monotonic()
    for number in range(count):
        work(number)
    return count / (time.monotonic() - begun)


def measure(folder, files, megabytes):
    noise = os.urandom(BLOCK)
    small = lambda number: number.to_bytes(8, "little") + noise[8:SMALL]
    block = lambda number: number.to_bytes(8, "little") + noise[8:]
    name = lambda number: f"/bench/{number}"

    def create(number):
        file = folder.open(name(number), True)
        assert folder.pwrite(file, small(number), 0) == SMALL
        folder.close(file)

    def stat(number):
        assert folder.size(name(number)) == SMALL

    def read(number):
        file = folder.open(name(number), False)
        assert folder.pread(file, SMALL, 0) == small(number)
        folder.close(file)

    folder.mkdir("/bench")
    reached = {what.__name__: rate(files, what) for what in (create, stat, read)}
    large = folder.open("/large", True)

    def write(number):
        assert folder.pwrite(large, block(number), number * BLOCK) == BLOCK
        if number == megabytes - 1:
            folder.fsync(large)

    def look(number):
        assert folder.pread(large, BLOCK, number * BLOCK) == block(number)

    reached["sequential_write"] = rate(megabytes, write) * BLOCK / 1e6
    reached["sequential_read"] = rate(megabytes, look) * BLOCK / 1e6
    folder.close(large)
    for number in range(files):
        folder.unlink(name(number))
    folder.unlink("/large"), folder.rmdir("/bench")
    return reached


if len(sys.argv) == 4:
    print(json.dumps(measure(Folder(sys.argv[3]), int(sys.argv[1]), int(sys.argv[2]))))
