"""A FUSE file system over a directory, one Python callback for each operation: passthrough.py DIRECTORY MOUNTPOINT

What source 1 had in mind: libfuse's high-level interface through mfusepy, which is fusepy for libfuse 3.
"""

import ctypes
import os
import stat
import sys

import mfusepy

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
ATTRIBUTES = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_blocks", "st_blksize")
STATFS = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_namemax")


def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Fuse(mfusepy.FUSE):
    """mfusepy drops the flags of rename, so that RENAME_NOREPLACE would replace, and UTIME_OMIT and UTIME_NOW."""

    def rename_fuse_3(self, old, new, flags):
        return self.operations.rename(os.fsdecode(old), os.fsdecode(new), flags)

    def utimens_fuse_3(self, path, buf, fip):
        return self.operations.utimens(path, buf)


def over_path(call, **fixed):
    """An operation that is one call on the path below."""
    return lambda self, path, *arguments: call(self.real(path), *arguments, **fixed)


class Passthrough(mfusepy.Operations):
    use_ns = True

    def __init__(self, root):
        self.root = root

    def real(self, path):
        return self.root + path

    def own(self, path, mode=None):
        """Gives a new entry to the caller; a directory with set-group-ID has given it the group already."""
        path = self.real(path)
        if os.geteuid() == 0:
            uid, gid, _ = mfusepy.fuse_get_context()
            is_group_inherited = os.lstat(os.path.dirname(path)).st_mode & stat.S_ISGID
            os.chown(path, uid, -1 if is_group_inherited else gid, follow_symlinks=False)
        if mode is not None:
            os.chmod(path, stat.S_IMODE(mode))

    def getattr(self, path, fh=None):
        found = os.lstat(self.real(path)) if fh is None else os.fstat(fh)
        attributes = {name: getattr(found, name) for name in ATTRIBUTES}
        return attributes | {name: getattr(found, name + "_ns") for name in ("st_atime", "st_mtime", "st_ctime")}

    def readdir(self, path, fh):
        yield from (".", "..")
        with os.scandir(self.real(path)) as entries:
            for entry in entries:
                yield entry.name, {"st_mode": entry.stat(follow_symlinks=False).st_mode, "st_ino": entry.inode()}, 0

    readlink = over_path(os.readlink)
    unlink = over_path(os.unlink)
    rmdir = over_path(os.rmdir)
    chmod = over_path(os.chmod)
    chown = over_path(os.chown, follow_symlinks=False)
    open = over_path(os.open)
    listxattr = over_path(os.listxattr, follow_symlinks=False)
    removexattr = over_path(os.removexattr, follow_symlinks=False)

    def mknod(self, path, mode, dev):
        os.mknod(self.real(path), mode, dev)
        self.own(path, mode)

    def mkdir(self, path, mode):
        os.mkdir(self.real(path), mode)
        self.own(path)

    def symlink(self, target, source):
        os.symlink(source, self.real(target))
        self.own(target)

    def rename(self, old, new, flags=0):
        old, new = os.fsencode(self.real(old)), os.fsencode(self.real(new))
        check(libc.renameat2(AT_FDCWD, old, AT_FDCWD, new, flags))

    def link(self, target, source):
        os.link(self.real(source), self.real(target), follow_symlinks=False)

    def truncate(self, path, length, fh=None):
        os.truncate(self.real(path) if fh is None else fh, length)

    def utimens(self, path, times):
        check(libc.utimensat(AT_FDCWD, os.fsencode(self.root) + path, times, AT_SYMLINK_NOFOLLOW))

    def create(self, path, mode, flags):
        fh = os.open(self.real(path), flags | os.O_CREAT, mode)
        self.own(path, mode)
        return fh

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def fallocate(self, path, mode, offset, size, fh):
        check(libc.fallocate(fh, mode, ctypes.c_long(offset), ctypes.c_long(size)))

    def fsync(self, path, datasync, fh):
        (os.fdatasync if datasync else os.fsync)(fh)

    fsyncdir = fsync

    def opendir(self, path):
        return os.open(self.real(path), os.O_RDONLY | os.O_DIRECTORY)

    def release(self, path, fh):
        os.close(fh)

    releasedir = release

    def statfs(self, path):
        found = os.statvfs(self.real(path))
        return {name: getattr(found, name) for name in STATFS}

    def getxattr(self, path, name, position=0):
        return os.getxattr(self.real(path), name, follow_symlinks=False)

    def setxattr(self, path, name, value, options, position=0):
        os.setxattr(self.real(path), name, value, options, follow_symlinks=False)


if __name__ == "__main__":
    directory, mountpoint = sys.argv[1:]
    os.umask(0)
    # Two names of one file are two nodes of libfuse: a cached attribute of one would hide a change through the other.
    fresh = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0, "use_ino": True}
    users = {"allow_other": True} if os.geteuid() == 0 else {}
    Fuse(Passthrough(directory), mountpoint, foreground=True, fsname="python-passthrough", default_permissions=True, **fresh, **users)
