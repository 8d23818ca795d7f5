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
        return self.operations.utimens_raw(path, buf)


class Passthrough(mfusepy.Operations):
    use_ns = True

    def __init__(self, root):
        self.root = root

    def real(self, path):
        return self.root + path

    def own(self, path):
        """Gives a new entry to the caller; a directory with set-group-ID has given it the group already."""
        if os.geteuid() == 0:
            uid, gid, _ = mfusepy.fuse_get_context()
            is_group_inherited = os.lstat(os.path.dirname(path)).st_mode & stat.S_ISGID
            os.chown(path, uid, -1 if is_group_inherited else gid, follow_symlinks=False)
        return 0

    def getattr(self, path, fh=None):
        found = os.lstat(self.real(path)) if fh is None else os.fstat(fh)
        attributes = {name: getattr(found, name) for name in ATTRIBUTES}
        return attributes | {name: getattr(found, name + "_ns") for name in ("st_atime", "st_mtime", "st_ctime")}

    def readdir(self, path, fh):
        yield from (".", "..")
        with os.scandir(self.real(path)) as entries:
            for entry in entries:
                yield entry.name, {"st_mode": entry.stat(follow_symlinks=False).st_mode, "st_ino": entry.inode()}, 0

    def readlink(self, path):
        return os.readlink(self.real(path))

    def mknod(self, path, mode, dev):
        os.mknod(self.real(path), mode, dev)
        return self.own_with_mode(path, mode)

    def mkdir(self, path, mode):
        os.mkdir(self.real(path), mode)
        return self.own(self.real(path))

    def own_with_mode(self, path, mode):
        self.own(self.real(path))
        os.chmod(self.real(path), stat.S_IMODE(mode))

    def unlink(self, path):
        os.unlink(self.real(path))

    def rmdir(self, path):
        os.rmdir(self.real(path))

    def symlink(self, target, source):
        os.symlink(source, self.real(target))
        return self.own(self.real(target))

    def rename(self, old, new, flags=0):
        old, new = os.fsencode(self.real(old)), os.fsencode(self.real(new))
        check(libc.renameat2(AT_FDCWD, old, AT_FDCWD, new, flags))

    def link(self, target, source):
        os.link(self.real(source), self.real(target), follow_symlinks=False)

    def chmod(self, path, mode):
        os.chmod(self.real(path), mode)

    def chown(self, path, uid, gid):
        os.chown(self.real(path), uid, gid, follow_symlinks=False)

    def truncate(self, path, length, fh=None):
        os.truncate(self.real(path) if fh is None else fh, length)

    def utimens(self, path, times=None):
        os.utime(self.real(path), ns=times, follow_symlinks=False)

    def utimens_raw(self, path, times):
        check(libc.utimensat(AT_FDCWD, os.fsencode(self.root) + path, times, AT_SYMLINK_NOFOLLOW))

    def create(self, path, mode, flags):
        fh = os.open(self.real(path), flags | os.O_CREAT, mode)
        self.own_with_mode(path, mode)
        return fh

    def open(self, path, flags):
        return os.open(self.real(path), flags)

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def fallocate(self, path, mode, offset, size, fh):
        check(libc.fallocate(fh, mode, ctypes.c_long(offset), ctypes.c_long(size)))

    def fsync(self, path, datasync, fh):
        (os.fdatasync if datasync else os.fsync)(fh)

    def opendir(self, path):
        return os.open(self.real(path), os.O_RDONLY | os.O_DIRECTORY)

    def fsyncdir(self, path, datasync, fh):
        os.fsync(fh)

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

    def listxattr(self, path):
        return os.listxattr(self.real(path), follow_symlinks=False)

    def removexattr(self, path, name):
        os.removexattr(self.real(path), name, follow_symlinks=False)


if __name__ == "__main__":
    directory, mountpoint = sys.argv[1:]
    os.umask(0)
    # Two names of one file are two nodes of libfuse: a cached attribute of one would hide a change through the other.
    fresh = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0, "use_ino": True}
    users = {"allow_other": True} if os.geteuid() == 0 else {}
    Fuse(Passthrough(directory), mountpoint, foreground=True, fsname="python-passthrough", default_permissions=True, **fresh, **users)
