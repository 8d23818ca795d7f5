//! Texts of a session outside of memory: in an unlinked temporary file, which ends with the last value in it.
//! A recording of any length is imported with little memory.

use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Values of at most so many bytes stay in memory.
const SMALL: usize = 64;

/// The temporary file. It is made when the first value is written.
#[derive(Debug, Default)]
pub struct Spill {
    file: Option<Arc<File>>,
    end: u64,
}

/// A value of a session, in memory if it is small, otherwise in a temporary file.
#[derive(Clone, Debug)]
pub struct SpilledValue<T> {
    place: Place,
    kind: PhantomData<fn() -> T>,
}

#[derive(Clone, Debug)]
enum Place {
    Memory(Box<[u8]>),
    File { file: Arc<File>, at: u64, bytes: usize },
}

/// A value that can be written to the temporary file.
pub trait Spillable: Sized {
    /// Its bytes.
    fn into_bytes(self) -> Vec<u8>;

    /// The value with these bytes.
    ///
    /// # Errors
    /// If no value has these bytes.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String>;
}

impl Spillable for Vec<u8> {
    fn into_bytes(self) -> Vec<u8> {
        self
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        Ok(bytes)
    }
}

impl Spillable for String {
    fn into_bytes(self) -> Vec<u8> {
        String::into_bytes(self)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        Self::from_utf8(bytes).map_err(|error| error.to_string())
    }
}

/// Makes a type that serde knows a value that can be written.
#[macro_export]
macro_rules! spillable {
    ($kind:ty) => {
        impl $crate::spill::Spillable for $kind {
            fn into_bytes(self) -> Vec<u8> {
                $crate::spill::encoded(&self)
            }

            fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
                $crate::spill::decoded(&bytes)
            }
        }
    };
}

/// The bytes of a value that serde knows.
pub fn encoded(value: &impl Serialize) -> Vec<u8> {
    // Only a list of unknown length has no encoding, and no value here has one.
    postcard::to_stdvec(value).unwrap_or_else(|error| unreachable!("a value in memory: {error}"))
}

/// The value with these bytes.
///
/// # Errors
/// If no value has these bytes.
pub fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| error.to_string())
}

impl Spill {
    /// Writes a value to the file. A value that cannot be written stays in memory.
    pub fn keep<T: Spillable>(&mut self, value: T) -> SpilledValue<T> {
        let bytes = value.into_bytes();
        let place = if bytes.len() > SMALL { self.write(&bytes) } else { None };
        SpilledValue { place: place.unwrap_or_else(|| Place::Memory(bytes.into())), kind: PhantomData }
    }

    fn write(&mut self, bytes: &[u8]) -> Option<Place> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.file.insert(Arc::new(tempfile::tempfile().ok()?))),
        };
        file.write_all_at(bytes, self.end).ok()?;
        let at = self.end;
        self.end += bytes.len() as u64;
        let bytes = bytes.len();
        Some(Place::File { file, at, bytes })
    }
}

/// A text that grows: what was added so far is in the temporary file, except for a short end, which is the last part.
#[derive(Clone, Debug, Default)]
pub struct SpilledText(Vec<SpilledValue<String>>);

impl SpilledText {
    /// Adds to the text.
    pub fn append(&mut self, more: &str, spill: &mut Spill) {
        if more.is_empty() {
            return;
        }
        let end = self.0.pop_if(|part| part.bytes() <= SMALL).and_then(|end| end.load().ok());
        // Most texts have one part, and a list that grows takes the room of four.
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        self.0.push(spill.keep(end.unwrap_or_default() + more));
    }

    /// The text.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub fn load(&self) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.0 {
            text.push_str(&part.load()?);
        }
        Ok(text)
    }
}

impl<T: Spillable> SpilledValue<T> {
    /// A value that stays in memory.
    pub fn in_memory(value: T) -> Self {
        Self { place: Place::Memory(value.into_bytes().into()), kind: PhantomData }
    }

    /// The value.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub fn load(&self) -> Result<T, String> {
        let bytes = match &self.place {
            Place::Memory(bytes) => bytes.to_vec(),
            Place::File { file, at, bytes } => {
                let mut read = vec![0; *bytes];
                file.read_exact_at(&mut read, *at).map_err(failed)?;
                read
            }
        };
        T::from_bytes(bytes).map_err(failed)
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        match &self.place {
            Place::Memory(bytes) => bytes.len(),
            Place::File { bytes, .. } => *bytes,
        }
    }

    /// Its size in memory, in bytes.
    pub(super) fn bytes_in_memory(&self) -> usize {
        match &self.place {
            Place::Memory(bytes) => bytes.len(),
            Place::File { .. } => 0,
        }
    }
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("the temporary file with texts of the session cannot be read ({error}); import the session again")
}

impl<T: Spillable + Default> Default for SpilledValue<T> {
    fn default() -> Self {
        Self::in_memory(T::default())
    }
}

impl<T: Spillable> From<T> for SpilledValue<T> {
    fn from(value: T) -> Self {
        Self::in_memory(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeenContent;

    #[test]
    fn a_long_value_is_in_the_file_and_a_short_one_in_memory() {
        let mut spill = Spill::default();
        let short = spill.keep("short".to_owned());
        let texts = ["é".repeat(SMALL), "b".repeat(3 * SMALL)];
        let long = texts.clone().map(|text| spill.keep(text));
        assert_eq!(short.bytes_in_memory(), 5);
        assert_eq!(short.load().unwrap(), "short");
        for (kept, text) in long.iter().zip(texts) {
            assert_eq!((kept.bytes(), kept.bytes_in_memory()), (text.len(), 0));
            assert_eq!(kept.load().unwrap(), text);
        }
        let seen = SeenContent::Part { path: "a".to_owned(), content: "x".repeat(SMALL), total_lines: 7 };
        let kept = spill.keep(seen.clone());
        drop(spill);
        assert_eq!(kept.bytes_in_memory(), 0);
        assert_eq!(kept.load().unwrap(), seen);
        let (mut spill, mut text) = (Spill::default(), SpilledText::default());
        for _ in 0..SMALL {
            text.append("é1", &mut spill);
        }
        assert_eq!(text.load().unwrap(), "é1".repeat(SMALL));
        assert!(text.0.len() <= 3);
    }
}
