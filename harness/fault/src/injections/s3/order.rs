//! The order in which changes reach the bucket, as docs/S3.md promises.
//!
//! Batches follow the journal. Within a batch: new files, replaced files, the manifest, deletions. So
//! changes made in that order must arrive in it, in whatever batches. A bulk deletion has its keys in its
//! body; only the first one counts.

use servers::{Operation, Seen};

/// The keys of a writer's changes, in the order of the changes.
pub struct Made {
    /// Keys of new files.
    pub new: Vec<String>,
    /// Keys of overwritten files.
    pub replaced: Vec<String>,
    /// Key of the manifest, which must list a new directory.
    pub manifest: String,
}

/// The violations of the promised order among completed requests.
pub fn out_of_order(done: &[Seen], made: &Made) -> Vec<String> {
    let places = |operation: Operation, keys: &[String]| -> Vec<usize> {
        let places = done.iter().enumerate();
        let of_these =
            places.filter(|(_, seen)| seen.operation == operation && keys.contains(&seen.path));
        of_these.map(|(at, _)| at).collect()
    };
    let new = places(Operation::Put, &made.new);
    let replaced = places(Operation::Put, &made.replaced);
    let manifest = places(Operation::Put, std::slice::from_ref(&made.manifest));
    let mut removed = done.iter();
    let removed = removed.position(|seen| seen.operation == Operation::Delete);
    let mut wrong = Vec::new();
    for (what, is_none) in [
        ("new", new.is_empty()),
        ("replaced", replaced.is_empty()),
        ("removed", removed.is_none()),
    ] {
        if is_none {
            wrong.push(format!("nothing {what} got to the bucket"));
        }
    }
    let (Some(last_new), Some(first_replaced), Some(last_replaced), Some(first_removed)) =
        (new.last(), replaced.first(), replaced.last(), removed)
    else {
        return wrong;
    };
    if last_new > first_replaced {
        wrong.push("something was replaced before what was made earlier was there".to_owned());
    }
    if *last_replaced > first_removed {
        wrong.push("something was deleted before what was replaced earlier was there".to_owned());
    }
    let is_between = |at: &usize| (*last_replaced..first_removed).contains(at);
    if !manifest.iter().any(is_between) {
        wrong.push(
            "the manifest did not go up after what was replaced and before deletions".to_owned(),
        );
    }
    wrong
}

#[cfg(test)]
mod tests {
    use servers::Answered;

    use super::*;

    fn done(requests: &[(Operation, &str)]) -> Vec<Seen> {
        let requests = requests.iter();
        requests
            .map(|(operation, path)| Seen {
                operation: *operation,
                path: (*path).to_owned(),
                bytes: 0,
                answered: Answered::Status(200),
            })
            .collect()
    }

    #[test]
    fn the_check_finds_each_swap_of_two_groups() {
        use Operation::{Delete, Put};
        let keys = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let made = Made {
            new: keys(&["n1", "n2"]),
            replaced: keys(&["r1", "r2"]),
            manifest: "m".to_owned(),
        };
        let right = [
            (Put, "n2"),
            (Put, "m"),
            (Put, "n1"),
            (Put, "r1"),
            (Put, "r2"),
            (Put, "m"),
            (Delete, "d"),
            (Put, "another"),
        ];
        assert_eq!(out_of_order(&done(&right), &made), [""; 0]);
        for (one, other, word) in [
            (2, 3, "replaced before"),
            (4, 6, "deleted before"),
            (5, 6, "manifest"),
        ] {
            let mut wrong = right;
            wrong.swap(one, other);
            let found = out_of_order(&done(&wrong), &made);
            assert!(found.iter().any(|found| found.contains(word)), "{found:?}");
        }
        let nothing = out_of_order(&[], &made);
        assert_eq!(nothing.len(), 3, "what is missing is not in order");
    }
}
