//! [`forward!`](crate::forward), for a store over another one.

/// Methods of an `impl Store` that call those of another store:
/// `forward! { self.files => fn parent(&self, dir: Ino) -> Result<Ino>; }`
#[macro_export]
macro_rules! forward {
    ($store:expr => $(fn $method:ident(&$this:ident $(, $name:ident: $kind:ty)* $(,)?) $(-> $result:ty)?;)+) => {
        $(fn $method(&$this $(, $name: $kind)*) $(-> $result)? {
            $store.$method($($name),*)
        })+
    };
}
