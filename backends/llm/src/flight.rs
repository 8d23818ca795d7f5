//! Request coalescing: callers that need the same answer share one model call.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use models::Cancel;
use parking_lot::{Condvar, Mutex};

use fuse::interrupt::{Requester, requester};
use fuse::store::{Errno, Result, StoreError};

/// How often a waiting call checks whether its caller was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long work and its outcome stay available after a signal interrupted the caller. Python and Go repeat
/// such a call, and the repeat must not start the work again.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(2);

/// A failure that several waiting calls can return.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) errno: Errno,
    pub(super) reason: String,
}

impl From<Failure> for StoreError {
    fn from(failed: Failure) -> Self {
        StoreError::storage(failed.errno, failed.reason)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { errno: error.errno, reason: error.to_string() }
    }
}

type Outcome<T> = std::result::Result<T, Failure>;

/// Work in flight, by key.
#[derive(Debug)]
pub(super) struct Flights<K, T> {
    running: Mutex<HashMap<K, Arc<Flight<T>>>>,
}

#[derive(Debug)]
struct Flight<T> {
    state: Mutex<State<T>>,
    landed: Condvar,
    cancel: Cancel,
}

#[derive(Debug)]
struct State<T> {
    outcome: Option<Outcome<T>>,
    waiting: usize,
    /// When a caller that may repeat its call was last interrupted.
    left: Option<Instant>,
    /// Whether a thread waits for an interrupted caller to repeat its call.
    is_watched: bool,
}

impl<T> State<T> {
    fn may_come_back(&self) -> bool {
        self.left.is_some_and(|left| left.elapsed() < COMES_BACK_WITHIN)
    }
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self { running: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone + Send + 'static, T: Clone + Send + 'static> Flights<K, T> {
    /// Runs `work` on its own thread, unless work for `key` is in flight, and waits for the outcome.
    ///
    /// An interrupted call returns `EINTR`. A repeat within [`COMES_BACK_WITHIN`] joins the same work. Work
    /// that no call waits for is cancelled.
    pub(super) fn join(
        self: &Arc<Self>,
        key: K,
        work: impl FnOnce(&Cancel) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        self.join_for(requester, key, work)
    }

    /// As [`Flights::join`], for the requester that `requester` describes.
    fn join_for(
        self: &Arc<Self>,
        requester: fn() -> Requester,
        key: K,
        work: impl FnOnce(&Cancel) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let (flight, is_new) = {
            let mut running = self.running.lock();
            if let Some(flight) = running.get(&key).cloned() {
                let mut state = flight.state.lock();
                if let Some(outcome) = &state.outcome {
                    // The work ended between an interrupted call and its repeat.
                    let outcome = outcome.clone();
                    running.remove(&key);
                    return Ok(outcome?);
                }
                state.waiting += 1;
                drop(state);
                (flight, false)
            } else {
                let flight = Arc::new(Flight {
                    state: Mutex::new(State { outcome: None, waiting: 1, left: None, is_watched: false }),
                    landed: Condvar::new(),
                    cancel: Cancel::default(),
                });
                running.insert(key.clone(), Arc::clone(&flight));
                (flight, true)
            }
        };
        if is_new {
            self.start(&key, &flight, work);
        }
        self.wait(requester, &key, &flight)
    }

    fn start(
        self: &Arc<Self>,
        key: &K,
        flight: &Arc<Flight<T>>,
        work: impl FnOnce(&Cancel) -> Outcome<T> + Send + 'static,
    ) {
        let landing =
            DeliveryGuard { flights: Arc::clone(self), key: key.clone(), flight: Arc::clone(flight), outcome: None };
        let spawned = std::thread::Builder::new().name("ask".to_owned()).spawn(move || {
            let mut landing = landing;
            landing.outcome = Some(work(&landing.flight.cancel));
        });
        if let Err(error) = spawned {
            // The closure dropped its `DeliveryGuard`, which has delivered a failure.
            tracing::error!(%error, "could not start a thread to ask the model");
        }
    }

    fn wait(self: &Arc<Self>, requester: fn() -> Requester, key: &K, flight: &Arc<Flight<T>>) -> Result<T> {
        let mut state = flight.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return Ok(outcome.clone()?);
            }
            let requester = requester();
            if requester != Requester::Waits {
                state.waiting -= 1;
                if requester == Requester::Interrupted {
                    state.left = Some(Instant::now());
                    let is_watched = std::mem::replace(&mut state.is_watched, true);
                    drop(state);
                    if !is_watched {
                        self.watch(key, flight);
                    }
                } else {
                    let is_last = state.waiting == 0;
                    drop(state);
                    if is_last {
                        self.abandon(key, flight);
                    }
                }
                return Err(Errno::INTR.into());
            }
            flight.landed.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    /// Cancels work that no call waits for, unless a caller has just joined or may repeat its call.
    fn abandon(&self, key: &K, flight: &Arc<Flight<T>>) {
        let mut running = self.running.lock();
        let state = flight.state.lock();
        if state.waiting > 0 || state.may_come_back() {
            return;
        }
        drop(state);
        flight.cancel.cancel();
        self.remove(&mut running, key, flight);
    }

    /// Abandons the work if no interrupted caller repeats its call in time.
    fn watch(self: &Arc<Self>, key: &K, flight: &Arc<Flight<T>>) {
        let (flights, watched, of) = (Arc::clone(self), Arc::clone(flight), key.clone());
        let spawned = std::thread::Builder::new().name("comes-back".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(COMES_BACK_WITHIN / 4);
                let mut state = watched.state.lock();
                if state.waiting > 0 {
                    // A call that waits now starts another watch when it is interrupted.
                    state.is_watched = false;
                    return;
                }
                if !state.may_come_back() {
                    break;
                }
            }
            flights.abandon(&of, &watched);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "cannot start the thread that waits for a retry; the request is abandoned");
            flight.state.lock().left = None;
            self.abandon(key, flight);
        }
    }

    fn remove(&self, running: &mut HashMap<K, Arc<Flight<T>>>, key: &K, flight: &Arc<Flight<T>>) {
        if running.get(key).is_some_and(|there| Arc::ptr_eq(there, flight)) {
            running.remove(key);
        }
    }
}

/// Delivers the outcome to all waiting calls, even if the work panics.
struct DeliveryGuard<K: Eq + Hash + Clone + Send + 'static, T: Clone + Send + 'static> {
    flights: Arc<Flights<K, T>>,
    key: K,
    flight: Arc<Flight<T>>,
    outcome: Option<Outcome<T>>,
}

impl<K: Eq + Hash + Clone + Send + 'static, T: Clone + Send + 'static> Drop for DeliveryGuard<K, T> {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| {
            Err(Failure { errno: Errno::IO, reason: "the thread that asks the model has failed".to_owned() })
        });
        {
            let mut running = self.flights.running.lock();
            let mut state = self.flight.state.lock();
            state.outcome = Some(outcome);
            // Otherwise the watching thread removes the work.
            if state.waiting > 0 || !state.may_come_back() {
                self.flights.remove(&mut running, &self.key, &self.flight);
            }
        }
        self.flight.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    fn eventually(what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < deadline, "waited in vain for: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn many_who_want_the_same_cause_one_piece_of_work() {
        let flights: Arc<Flights<u64, u64>> = Arc::default();
        let works = AtomicUsize::new(0);
        let works: &'static AtomicUsize = Box::leak(Box::new(works));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let all = Arc::clone(&flights);
                    let got = flights.join(7, move |_| {
                        works.fetch_add(1, Ordering::Relaxed);
                        eventually("eight callers", || all.running.lock()[&7].state.lock().waiting == 8);
                        Ok(42)
                    });
                    assert_eq!(got.unwrap(), 42);
                });
            }
        });
        assert_eq!(works.load(Ordering::Relaxed), 1);
        assert!(flights.running.lock().is_empty());
    }

    #[test]
    fn every_waiting_caller_gets_a_failure_or_a_panic() {
        let flights: Arc<Flights<u64, u64>> = Arc::default();
        let failed = flights.join(1, |_| Err(Failure { errno: Errno::TIMEDOUT, reason: "late".to_owned() }));
        assert_eq!(failed.unwrap_err().errno, Errno::TIMEDOUT);
        let failed = flights.join(1, |_| panic!("on purpose"));
        assert_eq!(failed.unwrap_err().errno, Errno::IO);
        assert_eq!(flights.join(1, |_| Ok(1)).unwrap(), 1);
    }

    #[test]
    fn an_interrupted_caller_rejoins_its_request() {
        let flights: Arc<Flights<u64, u64>> = Arc::default();
        let works: &'static AtomicUsize = Box::leak(Box::default());
        let may_end: &'static AtomicBool = Box::leak(Box::default());
        let work = move |cancel: &Cancel| {
            works.fetch_add(1, Ordering::Relaxed);
            while !may_end.load(Ordering::Relaxed) && !cancel.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(u64::from(cancel.is_cancelled()))
        };
        // A call whose caller has a caught signal pending.
        let interrupted = |key: u64| flights.join_for(|| Requester::Interrupted, key, work);
        // The caller repeats its call while the work runs, and after the work has ended.
        for is_after in [false, true] {
            let key = u64::from(is_after);
            works.store(0, Ordering::Relaxed);
            may_end.store(false, Ordering::Relaxed);
            for _ in 0..3 {
                assert_eq!(interrupted(key).unwrap_err().errno, Errno::INTR);
            }
            let outcome = || flights.running.lock()[&key].state.lock().outcome.is_some();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(if is_after { 0 } else { 50 }));
                    may_end.store(true, Ordering::Relaxed);
                });
                if is_after {
                    eventually("the end of the work", outcome);
                }
                assert_eq!(flights.join(key, work).unwrap(), 0);
            });
            assert_eq!(works.load(Ordering::Relaxed), 1, "after the end: {is_after}");
            assert!(flights.running.lock().is_empty());
        }
        // The caller does not repeat its call.
        may_end.store(false, Ordering::Relaxed);
        assert_eq!(interrupted(7).unwrap_err().errno, Errno::INTR);
        eventually("no caller gave the work up", || flights.running.lock().is_empty());
    }

    #[test]
    fn work_without_a_waiting_caller_is_cancelled() {
        let flights: Arc<Flights<u64, bool>> = Arc::default();
        let (sender, cancelled) = std::sync::mpsc::channel();
        // A caller's thread that does not exist counts as gone.
        let interrupted = fuse::interrupt::on_behalf_of(u32::MAX, || {
            flights.join(1, move |cancel| {
                while !cancel.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                sender.send(()).unwrap();
                Ok(true)
            })
        });
        assert_eq!(interrupted.unwrap_err().errno, Errno::INTR);
        cancelled.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
