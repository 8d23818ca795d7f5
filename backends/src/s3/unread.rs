//! Files of a cache that was set aside whose content is in the bucket only: the new cache has them under the names of
//! the bucket, and they get those that the old one had given them.
//!
//! Nothing of the old cache can take the place of what is lost here, so nothing is replaced that is yet to be moved.

use std::collections::BTreeSet;

use super::cache::Object;
use super::old::{Inode, Name, OldObject, Reason, Xattr};
use super::salvage::{Failed, Place, Saving, shown, told};
use crate::store::{Ino, RenameMode, Store};

/// Such a file, and a name that is to be its own.
pub(super) struct Unread {
    name: Name,
    inode: Inode,
    xattrs: Vec<Xattr>,
    /// What had the name before, as the old cache has it.
    known: Option<OldObject>,
    /// The directory of the new cache that the name is in.
    parent: Ino,
    /// As the new cache has it.
    object: Object,
    /// Its name in the new cache.
    from: (Ino, Vec<u8>),
    /// It keeps that one, too.
    keeps_it: bool,
    /// The name it had before it was moved out of the way of another: the one it has is for that time only.
    was: Option<(Ino, Vec<u8>)>,
}

impl Saving<'_> {
    /// All that has to be known of such a file before any is moved; `None` if it is none.
    pub(super) fn unread(&mut self, name: &Name, inode: &Inode) -> Result<Option<Unread>, Failed> {
        let Some((key, etag)) = self.old.stub(inode.attr.ino)? else {
            return Ok(None);
        };
        let object = self.object_of_key(&key)?;
        let Some(object) = object.filter(|object| object.etag == etag) else {
            let reason = "its content was in the bucket only, and has changed there";
            return Err(reason.to_owned().into());
        };
        let before = self.old.name_of_key(&key)?;
        let names = self.names.get(&inode.attr.ino);
        let keeps_it = before.is_some_and(|before| names.is_some_and(|all| all.contains(&before)));
        Ok(Some(Unread {
            name: name.clone(),
            xattrs: self.old.xattrs(inode.attr.ino)?,
            known: self.old.object(name)?,
            parent: self.directory_or_root(name.0)?,
            from: (object.parent, object.name.clone()),
            keeps_it,
            was: None,
            object,
            inode: inode.clone(),
        }))
    }

    /// Gives each the name that it is to have: first those whose name nobody has who is to be moved himself.
    ///
    /// # Errors
    /// If the new cache cannot hold them.
    pub(super) fn move_unread(&mut self, mut waiting: Vec<Unread>) -> Result<(), Reason> {
        while !waiting.is_empty() {
            let to_be_moved: BTreeSet<Ino> = waiting.iter().map(|file| file.object.ino).collect();
            let free = waiting.iter().position(|file| {
                let there = self.there(file.parent, &file.name.1);
                !matches!(there, Ok(Some(there))
                    if there.ino != file.object.ino && to_be_moved.contains(&there.ino))
            });
            let in_the_way = || {
                let mut all = waiting.iter();
                all.position(|file| file.was.is_none() && !file.keeps_it)
            };
            match (free, in_the_way()) {
                // They have changed places: one of them makes room.
                (None, Some(nth)) => {
                    let moved = self.move_out(&mut waiting[nth]);
                    if let Err(failed) = moved {
                        let file = waiting.remove(nth);
                        self.note(&file.name.1, file.inode.attr.ino, Err(failed))?;
                    }
                }
                (nth, _) => {
                    let file = waiting.remove(nth.unwrap_or(0));
                    let moved = self.move_one(&file);
                    if moved.is_err() {
                        self.move_back(&file);
                    }
                    self.note(&file.name.1, file.inode.attr.ino, moved)?;
                }
            }
        }
        Ok(())
    }

    fn move_out(&mut self, file: &mut Unread) -> Result<(), Failed> {
        let name = self.unfinished_name(file.parent)?;
        let (from, to) = (
            (file.from.0, file.from.1.as_slice()),
            (file.parent, name.as_slice()),
        );
        let renamed = self
            .store
            .rename(&self.caller(), from, to, RenameMode::NoReplace);
        renamed.map_err(told)?;
        file.was = Some(std::mem::replace(&mut file.from, (file.parent, name)));
        Ok(())
    }

    /// Gives a file that could not get its name the one that it had in the bucket, or one beside that if it is taken.
    fn move_back(&self, file: &Unread) {
        let Some((parent, name)) = &file.was else {
            return;
        };
        let rename = |to: &[u8]| {
            let from = (file.from.0, file.from.1.as_slice());
            let mode = RenameMode::NoReplace;
            let renamed = self.store.rename(&self.caller(), from, (*parent, to), mode);
            renamed.map_err(told)
        };
        let moved = rename(name).or_else(|_| rename(&self.conflict_name(*parent, name)?));
        if let Err(failed) = moved {
            tracing::warn!(
                name = shown(&file.from.1),
                ?failed,
                "it keeps a name for a time only"
            );
        }
    }

    /// Gives it its name; whether it had to be kept beside another. `None` if the bucket has it there.
    fn move_one(&self, file: &Unread) -> Result<Option<bool>, Failed> {
        let (ino, parent, name) = (file.object.ino, file.parent, &file.name.1);
        let there = self.there(parent, name)?;
        if there.is_some_and(|there| there.ino == ino) {
            self.dress(ino, &file.inode, &file.xattrs)?;
            return Ok(Some(false));
        }
        let sha256 = &file.object.meta.sha256;
        let place = self.place(parent, name, &file.inode, file.known.as_ref(), sha256)?;
        let place = match place {
            None if file.was.is_none() => return Ok(None),
            place => place.unwrap_or(Place::Taken),
        };
        self.dress(ino, &file.inode, &file.xattrs)?;
        let (to, mode) = self.name_for(&place, ino, parent, name)?;
        let (caller, to) = (self.caller(), (parent, to.as_slice()));
        let from = (file.from.0, file.from.1.as_slice());
        let is_there = self.there(from.0, from.1)?.is_some_and(|it| it.ino == ino);
        if is_there && !file.keeps_it {
            let replaced = self.store.rename(&caller, from, to, mode).map_err(told)?;
            self.clear_away(replaced);
        } else {
            if mode == RenameMode::Replace {
                let replaced = self.store.unlink(&caller, to.0, to.1).map_err(told)?;
                self.clear_away(replaced);
            }
            let linked = self.store.link(&caller, ino, to.0, to.1);
            linked.map_err(told)?;
        }
        Ok(Some(matches!(place, Place::Taken)))
    }
}
