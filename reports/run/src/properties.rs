//! The properties of a backend that a run probes, under the aspect [`PROPERTY`].

/// The aspect of these probes.
pub const PROPERTY: &str = "property";

/// A copy of the backend's whole state is mounted elsewhere, and has the same files.
pub const PORTABLE: &str = "portable";
/// Files are read as they were when a snapshot was taken.
pub const SNAPSHOT: &str = "snapshot";
/// The files that have changed since a snapshot are listed.
pub const DIFF: &str = "diff";
/// Earlier contents of a file are listed and read.
pub const VERSIONS: &str = "versions";
/// A directory is copied, and the copies change apart.
pub const FORK: &str = "fork";
/// The files are there on another machine when this one and its disk are lost.
pub const MACHINE_LOSS: &str = "survives-machine-loss";
/// A second process reads and writes the same files.
pub const SECOND_PROCESS: &str = "second-process";
/// A watcher (inotify) sees a change made through the mount.
pub const WATCHERS: &str = "watchers";
/// The same of a change made on another host.
pub const WATCHERS_OTHER_HOST: &str = "watchers-other-host";

/// The name of each property, and its words in a sentence about a need.
pub const PROPERTIES: [(&str, &str); 9] = [
    (PORTABLE, "a portable state"),
    (SNAPSHOT, "snapshots"),
    (DIFF, "diffs"),
    (VERSIONS, "versions"),
    (FORK, "forks"),
    (MACHINE_LOSS, "files that survive the machine"),
    (SECOND_PROCESS, "a second process"),
    (WATCHERS, "watchers"),
    (WATCHERS_OTHER_HOST, "watchers on another host"),
];
