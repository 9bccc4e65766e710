//! Declares structures and messages from their field lists, so that a layout is written once and both directions follow.
//!
//! Field names are Ceph's own; fields are documented where the name does not say it all. `field: Type => N` marks a
//! field that exists since version N of its structure or message: older inputs leave it at its default.

macro_rules! field {
    ($r:ident, $v:ident, $t:ty) => {
        <$t as $crate::codec::Decode>::decode($r)?
    };
    ($r:ident, $v:ident, $t:ty, $since:literal) => {
        if $v >= $since { <$t as $crate::codec::Decode>::decode($r)? } else { <$t>::default() }
    };
}

/// Structures with a version envelope: `Name = "ceph_name_t", version, compat { fields }`.
macro_rules! versioned {
    ($(
        $(#[$m:meta])*
        $name:ident = $ceph:literal, $v:literal, $c:literal {
            $($(#[$fm:meta])* $f:ident: $t:ty $(=> $since:literal)?),* $(,)?
        }
    )*) => {$(
        $(#[$m])*
        #[allow(missing_docs)]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name { $($(#[$fm])* pub $f: $t),* }
        impl $crate::codec::Encode for $name {
            fn encode(&self, w: &mut $crate::codec::Writer) {
                w.versioned($v, $c, |w| { let _ = &w; $(w.put(&self.$f);)* });
            }
        }
        impl $crate::codec::Decode for $name {
            fn decode(r: &mut $crate::codec::Reader<'_>) -> $crate::codec::Result<Self> {
                r.versioned($ceph, $v, |r, v| {
                    let _ = (&r, v);
                    Ok(Self { $($f: $crate::macros::field!(r, v, $t $(, $since)?)),* })
                })
            }
        }
    )*};
}

/// Structures without an envelope: the fields one after another.
macro_rules! plain {
    ($(
        $(#[$m:meta])*
        $name:ident { $($(#[$fm:meta])* $f:ident: $t:ty),* $(,)? }
    )*) => {$(
        $(#[$m])*
        #[allow(missing_docs)]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name { $($(#[$fm])* pub $f: $t),* }
        impl $crate::codec::Encode for $name {
            fn encode(&self, w: &mut $crate::codec::Writer) { let _ = &w; $(w.put(&self.$f);)* }
        }
        impl $crate::codec::Decode for $name {
            fn decode(r: &mut $crate::codec::Reader<'_>) -> $crate::codec::Result<Self> {
                let _ = &r;
                Ok(Self { $($f: $crate::macros::field!(r, v, $t)),* })
            }
        }
    )*};
}

/// Messages: `Name = type, version, compat { front fields }`, with `+ data` for those that carry a data segment
/// (a field `data` is added).
macro_rules! message {
    ($(
        $(#[$m:meta])*
        $name:ident = $kind:literal, $v:literal, $c:literal $(+ $data:ident)? {
            $($(#[$fm:meta])* $f:ident: $t:ty $(=> $since:literal)?),* $(,)?
        }
    )*) => {$(
        $(#[$m])*
        #[allow(missing_docs)]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$fm])* pub $f: $t,)*
            $(/// The data segment.
            pub $data: bytes::Bytes,)?
        }
        impl $crate::frame::WireMessage for $name {
            const KIND: u16 = $kind;
            const VERSION: u16 = $v;
            const COMPAT: u16 = $c;
            fn encode_front(&self, w: &mut $crate::codec::Writer) { let _ = &w; $(w.put(&self.$f);)* }
            fn decode_front(
                r: &mut $crate::codec::Reader<'_>,
                v: u16,
                d: &bytes::Bytes,
            ) -> $crate::codec::Result<Self> {
                let _ = (&r, v, d);
                Ok(Self { $($f: $crate::macros::field!(r, v, $t $(, $since)?),)* $($data: d.clone())? })
            }
            $(fn data(&self) -> bytes::Bytes { self.$data.clone() })?
        }
    )*};
}

pub(crate) use {field, message, plain, versioned};
