"""A FUSE file system over a directory, asynchronous: asynchronous.py DIRECTORY MOUNTPOINT

libfuse's low-level interface through pyfuse3 and trio. A file of the directory is known by an open descriptor
(O_PATH), so renames and further names need no table of paths.
"""

import ctypes
import functools
import inspect
import os
import resource
import signal
import stat
import sys

import pyfuse3
import trio

libc = ctypes.CDLL(None, use_errno=True)
ATTRIBUTES = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_blocks", "st_blksize",
              "st_atime_ns", "st_mtime_ns", "st_ctime_ns")
STATFS = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_namemax")


def with_errno(operation):
    @functools.wraps(operation)
    async def answered(*arguments):
        try:
            return await operation(*arguments)
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno) from None
    return answered


class Asynchronous(pyfuse3.Operations):
    enable_writeback_cache = False

    def __init__(self, root):
        super().__init__()
        self.nodes = {pyfuse3.ROOT_INODE: os.open(root, os.O_PATH)}
        self.lookups = {}
        self.listings = {}

    def path(self, inode):
        return f"/proc/self/fd/{self.nodes[inode]}"

    def attributes(self, inode):
        found = os.fstat(self.nodes[inode])
        entry = pyfuse3.EntryAttributes()
        for name in ATTRIBUTES:
            setattr(entry, name, getattr(found, name))
        entry.st_ino, entry.entry_timeout, entry.attr_timeout = inode, 1, 1
        return entry

    def enter(self, parent, name):
        """Looks a name up without counting it."""
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.nodes[parent])
        inode = os.fstat(fd).st_ino
        if self.nodes.setdefault(inode, fd) != fd:
            os.close(fd)
        return self.attributes(inode)

    def found(self, parent, name):
        entry = self.enter(parent, name)
        self.lookups[entry.st_ino] = self.lookups.get(entry.st_ino, 0) + 1
        return entry

    def made(self, parent, name, ctx, mode=None):
        """Gives a new entry to the caller; a directory with set-group-ID has given it the group already."""
        directory = self.nodes[parent]
        if os.geteuid() == 0:
            is_group_inherited = os.fstat(directory).st_mode & stat.S_ISGID
            os.chown(name, ctx.uid, -1 if is_group_inherited else ctx.gid, dir_fd=directory, follow_symlinks=False)
        if mode is not None:
            os.chmod(name, stat.S_IMODE(mode), dir_fd=directory)
        return self.found(parent, name)

    async def lookup(self, parent, name, ctx):
        return self.found(parent, name)

    async def forget(self, inodes):
        for inode, count in inodes:
            self.lookups[inode] = self.lookups.get(inode, 0) - count
            if self.lookups[inode] <= 0 and inode != pyfuse3.ROOT_INODE:
                del self.lookups[inode]
                os.close(self.nodes.pop(inode))

    async def getattr(self, inode, ctx):
        return self.attributes(inode)

    async def setattr(self, inode, attr, fields, fh, ctx):
        path = self.path(inode)
        if fields.update_size:
            os.truncate(path if fh is None else fh, attr.st_size)
        if fields.update_uid or fields.update_gid:
            os.chown(path, attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1)
        if fields.update_mode:
            os.chmod(path, stat.S_IMODE(attr.st_mode))
        if fields.update_atime or fields.update_mtime:
            now = os.fstat(self.nodes[inode])
            os.utime(path, ns=(attr.st_atime_ns if fields.update_atime else now.st_atime_ns,
                               attr.st_mtime_ns if fields.update_mtime else now.st_mtime_ns))
        return self.attributes(inode)

    async def readlink(self, inode, ctx):
        return os.readlink(b"", dir_fd=self.nodes[inode])

    async def mknod(self, parent, name, mode, rdev, ctx):
        os.mknod(name, mode, rdev, dir_fd=self.nodes[parent])
        return self.made(parent, name, ctx, mode)

    async def mkdir(self, parent, name, mode, ctx):
        os.mkdir(name, mode, dir_fd=self.nodes[parent])
        return self.made(parent, name, ctx)

    async def symlink(self, parent, name, target, ctx):
        os.symlink(target, name, dir_fd=self.nodes[parent])
        return self.made(parent, name, ctx)

    async def link(self, inode, parent, name, ctx):
        os.link(self.path(inode), name, dst_dir_fd=self.nodes[parent], follow_symlinks=True)
        return self.found(parent, name)

    async def unlink(self, parent, name, ctx):
        os.unlink(name, dir_fd=self.nodes[parent])

    async def rmdir(self, parent, name, ctx):
        os.rmdir(name, dir_fd=self.nodes[parent])

    async def rename(self, parent, name, new_parent, new_name, flags, ctx):
        if libc.renameat2(self.nodes[parent], name, self.nodes[new_parent], new_name, flags) != 0:
            raise pyfuse3.FUSEError(ctypes.get_errno())

    async def create(self, parent, name, mode, flags, ctx):
        fh = os.open(name, (flags | os.O_CREAT | os.O_NOFOLLOW) & ~os.O_APPEND, mode, dir_fd=self.nodes[parent])
        return pyfuse3.FileInfo(fh=fh), self.made(parent, name, ctx, mode)

    async def open(self, inode, flags, ctx):
        return pyfuse3.FileInfo(fh=os.open(self.path(inode), flags & ~(os.O_NOFOLLOW | os.O_CREAT | os.O_APPEND)))

    async def read(self, fh, offset, size):
        return os.pread(fh, size, offset)

    async def write(self, fh, offset, data):
        return os.pwrite(fh, data, offset)

    async def fsync(self, fh, datasync):
        await trio.to_thread.run_sync(os.fdatasync if datasync else os.fsync, fh)

    fsyncdir = fsync

    async def flush(self, fh):
        os.close(os.dup(fh))

    async def release(self, fh):
        self.listings.pop(fh, None)
        os.close(fh)

    releasedir = release

    async def opendir(self, inode, ctx):
        return os.open(self.path(inode), os.O_RDONLY | os.O_DIRECTORY)

    async def readdir(self, fh, start, token):
        if start == 0 or fh not in self.listings:
            self.listings[fh] = os.fstat(fh).st_ino, [os.fsencode(name) for name in os.listdir(fh)]
        inode, names = self.listings[fh]
        parent = inode if inode in self.nodes else pyfuse3.ROOT_INODE
        for at in range(start, len(names)):
            try:
                entry = self.enter(parent, names[at])
            except FileNotFoundError:
                continue
            if not pyfuse3.readdir_reply(token, names[at], entry, at + 1):
                if entry.st_ino not in self.lookups:
                    os.close(self.nodes.pop(entry.st_ino))
                break
            self.lookups[entry.st_ino] = self.lookups.get(entry.st_ino, 0) + 1

    async def statfs(self, ctx):
        found, answer = os.statvfs(self.path(pyfuse3.ROOT_INODE)), pyfuse3.StatvfsData()
        for name in STATFS:
            setattr(answer, name, getattr(found, name))
        return answer

    async def getxattr(self, inode, name, ctx):
        return os.getxattr(self.path(inode), name)

    async def setxattr(self, inode, name, value, ctx):
        os.setxattr(self.path(inode), name, value)

    async def listxattr(self, inode, ctx):
        return [os.fsencode(name) for name in os.listxattr(self.path(inode))]

    async def removexattr(self, inode, name, ctx):
        os.removexattr(self.path(inode), name)


for name, operation in list(vars(Asynchronous).items()):
    if inspect.iscoroutinefunction(operation):
        setattr(Asynchronous, name, with_errno(operation))


async def serve():
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async def stop():
                async for _ in signals:
                    pyfuse3.terminate()
            nursery.start_soon(stop)
            await pyfuse3.main()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    directory, mountpoint = sys.argv[1:]
    os.umask(0)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options = pyfuse3.default_options | {"fsname=python-async"} | ({"allow_other"} if os.geteuid() == 0 else set())
    pyfuse3.init(Asynchronous(directory), mountpoint, options)
    try:
        trio.run(serve)
    finally:
        pyfuse3.close(unmount=True)
