//! Sessions with a bucket that is not the one that their working copy knows.

use std::sync::{Arc, Mutex};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use s3::objects::{Floor, Key, Record};
use s3::session::{BrokenLog, SessionError};

use crate::Bug;
use crate::host::{Action, Disk, Host};
use crate::server::{Server, lock};

/// A healthy bucket and hosts that are mounted on it.
struct World {
    server: Arc<Mutex<Server>>,
    hosts: Vec<Host>,
    random: ChaCha8Rng,
}

impl World {
    fn new(hosts: usize) -> Self {
        let mut world = Self {
            server: Arc::new(Mutex::new(Server::new(Bug::None, false, 0))),
            hosts: (0..hosts).map(|number| Host::new(number, Disk::new(), Bug::None)).collect(),
            random: ChaCha8Rng::seed_from_u64(1),
        };
        for at in 0..hosts {
            world.hosts[at].mount(1 + at as u64);
            world.run(at, Action::Join).unwrap();
        }
        world
    }

    fn run(&mut self, at: usize, action: Action) -> Result<(), SessionError> {
        self.hosts[at].start(action, &self.server, &Arc::default(), &Arc::default(), None);
        loop {
            if let Some((_, outcome)) = self.hosts[at].poll(&Arc::default()) {
                return outcome.map(|_| ());
            }
            lock(&self.server).advance(&mut self.random);
        }
    }

    /// Commits a new file.
    fn write(&mut self, at: usize, name: u32) {
        lock(&self.hosts[at].disk).act(|files| files.act([0, name, 3, 0]));
        self.run(at, Action::Commit).unwrap();
    }

    fn broken(&mut self, at: usize, action: Action) -> BrokenLog {
        match self.run(at, action) {
            Err(SessionError::Broken(broken)) => broken,
            other => panic!("{action:?} gives {other:?}"),
        }
    }

    /// Removes all commits after one, as a restored backup does.
    fn roll_back(&mut self, to: u64) {
        let mut server = lock(&self.server);
        server.objects.retain(|key, _| !matches!(key, Key::Log(number) if *number > to));
        server.forget_keys();
    }
}

#[test]
fn an_emptied_bucket_stops_a_session() {
    let mut world = World::new(1);
    world.write(0, 0);
    lock(&world.server).objects.clear();
    for action in [Action::Glance, Action::Verify, Action::Join] {
        assert!(matches!(world.broken(0, action), BrokenLog::Gone(_)));
    }
}

#[test]
fn a_bucket_that_was_rolled_back_stops_a_session_also_when_it_was_written_again() {
    let mut world = World::new(2);
    world.write(0, 0);
    world.write(0, 1);
    world.run(1, Action::Follow).unwrap();
    world.write(0, 2);
    world.run(0, Action::Glance).unwrap();
    world.roll_back(3);
    assert_eq!(world.broken(0, Action::Glance), BrokenLog::Gone(4));
    world.write(1, 3);
    for action in [Action::Verify, Action::Glance] {
        assert_eq!(world.broken(0, action), BrokenLog::Different(4));
    }
    world.write(1, 4);
    assert_eq!(world.broken(0, Action::Follow), BrokenLog::Chain(5));
}

/// The commit after the one that was replaced does not exist, so the server accepts one of a working copy that knows another.
#[test]
fn a_session_that_committed_to_a_bucket_which_was_rolled_back_and_written_again_stops() {
    let mut world = World::new(2);
    world.write(0, 0);
    world.run(1, Action::Follow).unwrap();
    world.write(0, 1);
    world.run(0, Action::Glance).unwrap();
    world.roll_back(2);
    world.write(1, 2);
    world.write(0, 3);
    assert_eq!(world.broken(0, Action::Glance), BrokenLog::Different(3));
}

#[test]
fn a_session_that_began_without_the_server_finds_that_it_overwrites() {
    let mut world = World::new(1);
    world.write(0, 0);
    let objects = lock(&world.server).objects.clone();
    world.server = Arc::new(Mutex::new(Server::new(Bug::OverwriteAll, false, 0)));
    lock(&world.server).objects = objects.clone();
    world.hosts[0].kill();
    world.hosts[0].mount(9);
    lock(&world.hosts[0].disk).act(|files| files.act([0, 1, 3, 0]));
    assert_eq!(world.broken(0, Action::Commit), BrokenLog::Unconditional);
    assert_eq!(lock(&world.server).objects, objects);
}

#[test]
fn a_new_working_copy_refuses_a_log_without_its_first_commit() {
    let mut world = World::new(1);
    world.write(0, 0);
    world.run(0, Action::Checkpoint).unwrap();
    lock(&world.server).objects.remove(&Key::Log(1));
    world.hosts.push(Host::new(1, Disk::new(), Bug::None));
    world.hosts[1].mount(9);
    assert_eq!(world.broken(1, Action::Join), BrokenLog::Gone(1));
}

#[test]
fn a_server_that_overwrites_is_found_at_the_first_mount() {
    let mut world = World::new(0);
    world.server = Arc::new(Mutex::new(Server::new(Bug::OverwriteAll, false, 0)));
    world.hosts.push(Host::new(0, Disk::new(), Bug::None));
    world.hosts[0].mount(9);
    assert_eq!(world.broken(0, Action::Join), BrokenLog::Unconditional);
}

#[test]
fn a_server_that_overwrites_later_is_found_at_the_next_mount() {
    let mut world = World::new(1);
    world.write(0, 0);
    let objects = lock(&world.server).objects.clone();
    let mut server = Server::new(Bug::OverwriteAll, false, 0);
    server.objects = objects;
    world.server = Arc::new(Mutex::new(server));
    assert_eq!(world.broken(0, Action::Join), BrokenLog::Unconditional);
}

#[test]
fn a_checkpoint_of_another_log_is_refused() {
    let mut world = World::new(1);
    world.write(0, 0);
    world.run(0, Action::Checkpoint).unwrap();
    // Another writer has written the commit again.
    world.roll_back(1);
    world.hosts.push(Host::new(1, Disk::new(), Bug::None));
    let checkpoint = lock(&world.server).objects.remove(&Key::Checkpoint(2)).unwrap();
    world.hosts[1].mount(9);
    world.run(1, Action::Join).unwrap();
    world.write(1, 1);
    lock(&world.server).objects.insert(Key::Checkpoint(2), checkpoint);
    // An old listing does not show it.
    let refused = (2..20).find_map(|at| {
        world.hosts.push(Host::new(at, Disk::new(), Bug::None));
        world.hosts[at].mount(10 + at as u64);
        world.run(at, Action::Join).err()
    });
    let is_named = matches!(&refused, Some(SessionError::Broken(BrokenLog::Damaged(key, _))) if key == "Checkpoint(2)");
    assert!(is_named, "{refused:?}");
}

#[test]
fn another_log_whose_floor_is_past_the_head_stops_a_session() {
    let (mut world, mut other) = (World::new(1), World::new(0));
    world.write(0, 0);
    other.hosts.push(Host::new(5, Disk::new(), Bug::None));
    other.hosts[0].mount(9);
    other.run(0, Action::Join).unwrap();
    (1..4).for_each(|name| other.write(0, name));
    other.run(0, Action::Checkpoint).unwrap();
    let mut objects = lock(&other.server).objects.clone();
    let floor = Floor { checkpoint: 4, time: 0 };
    objects.insert(Key::Floor(1), (floor.encode(&[]).unwrap(), 0));
    objects.remove(&Key::Log(2));
    lock(&world.server).objects = objects;
    for action in [Action::Verify, Action::Join] {
        assert_eq!(world.broken(0, action), BrokenLog::Different(1));
    }
}
