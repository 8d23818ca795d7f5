//! How many requests that carry content are under way at once: fewer after one has taken too long, as they share the way
//! there, and more again as they get there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::remote::RemoteError;
use super::upload::PARALLEL;

#[derive(Debug)]
pub(super) struct Uplink {
    slots: Semaphore,
    width: Mutex<Width>,
}

#[derive(Clone, Copy, Debug)]
struct Width {
    /// Requests that may be under way.
    wanted: usize,
    /// Slots that there are, free or taken: too many until those that are taken come back.
    there: usize,
}

impl Default for Uplink {
    fn default() -> Self {
        Self {
            slots: Semaphore::new(PARALLEL),
            width: Mutex::new(Width {
                wanted: PARALLEL,
                there: PARALLEL,
            }),
        }
    }
}

impl Uplink {
    fn width(&self) -> MutexGuard<'_, Width> {
        self.width.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a request when there is room for it.
    pub(super) async fn carry<T>(
        &self,
        request: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        let slot = Slot {
            uplink: self,
            // Only one that was closed has none, and this one never is.
            permit: self.slots.acquire().await.ok(),
        };
        let begun_with = self.width().wanted;
        let done = request.await;
        let mut width = self.width();
        match &done {
            Ok(_) if width.wanted < PARALLEL => {
                width.wanted += 1;
                if width.there < width.wanted {
                    width.there += 1;
                    self.slots.add_permits(1);
                }
            }
            // Those that were under way beside it tell nothing new.
            Err(RemoteError::Timeout(_)) if width.wanted == begun_with => {
                width.wanted = (begun_with / 2).max(1);
            }
            _ => {}
        }
        drop(width);
        drop(slot);
        done
    }
}

struct Slot<'a> {
    uplink: &'a Uplink,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut width = self.uplink.width();
        if width.there > width.wanted
            && let Some(permit) = self.permit.take()
        {
            width.there -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    /// How many of as many as there may ever be are under way at once, and end so.
    async fn at_once(uplink: &Uplink, end: impl Fn() -> Result<(), RemoteError>) -> usize {
        let (under_way, most) = (Mutex::new(0), Mutex::new(0));
        let all = (0..PARALLEL).map(|_| {
            uplink.carry(async {
                let now = {
                    let mut under_way = under_way.lock().unwrap();
                    *under_way += 1;
                    *under_way
                };
                let most_yet = *most.lock().unwrap();
                *most.lock().unwrap() = most_yet.max(now);
                tokio::task::yield_now().await;
                *under_way.lock().unwrap() -= 1;
                end()
            })
        });
        join_all(all).await;
        most.into_inner().unwrap()
    }

    #[tokio::test]
    async fn fewer_are_under_way_after_one_has_timed_out_and_more_again_later() {
        let uplink = Uplink::default();
        let late = || Err(RemoteError::Timeout("late".to_owned()));
        let broken = || Err(RemoteError::NoAnswer("reset".to_owned()));
        assert_eq!(at_once(&uplink, || Ok(())).await, PARALLEL);
        assert_eq!(at_once(&uplink, broken).await, PARALLEL);
        assert_eq!(at_once(&uplink, late).await, PARALLEL);
        assert_eq!(
            at_once(&uplink, broken).await,
            PARALLEL / 2,
            "once for all of them"
        );
        for _ in 0..10 {
            at_once(&uplink, late).await;
        }
        assert_eq!(at_once(&uplink, broken).await, 1);
        at_once(&uplink, || Ok(())).await;
        assert_eq!(at_once(&uplink, || Ok(())).await, PARALLEL);
    }
}
