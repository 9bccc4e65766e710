//! Operations on user attributes.

use super::{OpCtx, Step, Stop};
use crate::limits::{ATTR_NAME_LEN_MAX, ATTR_SIZE_MAX};
use crate::object::USER_ATTR_PREFIX;
use base::errno::{ECANCELED, EFBIG, EINVAL, ENAMETOOLONG, ENODATA, ENOENT};
use base::sizes::{ENTRY_OVERHEAD, OBJECT_ATTRS_MAX};
use bytes::{BufMut, Bytes, BytesMut};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use wire::msg::OsdOp;
use wire::{Encode, Features, Reader};

/// Name under which a user attribute is stored.
pub(super) fn stored_name(user: &[u8]) -> Bytes {
    let mut b = BytesMut::with_capacity(user.len() + 1);
    b.put_u8(USER_ATTR_PREFIX);
    b.extend_from_slice(user);
    b.freeze()
}

/// True if `o` satisfies the protocol's comparison operator; `None` for an unknown one.
pub(super) fn compare(op: u8, o: Ordering) -> Option<bool> {
    Some(match op {
        1 => o.is_eq(),
        2 => o.is_ne(),
        3 => o.is_gt(),
        4 => o.is_ge(),
        5 => o.is_lt(),
        6 => o.is_le(),
        _ => return None,
    })
}

/// The number at the start of `text`, as `strtoull` reads it; numeric comparison of attributes uses it.
fn leading_number(text: &[u8]) -> u64 {
    let digits = text.trim_ascii_start();
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    let mut n: u64 = 0;
    for d in digits.iter().take_while(|b| b.is_ascii_digit()) {
        n = n.saturating_mul(10).saturating_add(u64::from(d - b'0'));
    }
    n
}

impl OpCtx<'_> {
    /// A user attribute as it was before the vector.
    ///
    /// # Errors
    ///
    /// `ENOENT` without object, `ENODATA` without attribute.
    pub(super) fn user_attr(&mut self, name: &[u8]) -> Step<Bytes> {
        let v = self.view.attr(&stored_name(name));
        self.count_read(v.as_ref().map_or(0, Bytes::len));
        v
    }

    /// All user attributes as they were before the vector.
    pub(super) fn user_attrs(&mut self) -> Step<BTreeMap<Bytes, Bytes>> {
        let all = self.view.attrs()?;
        // `_` alone is the object info; the PG's other attributes have no prefix.
        Ok(all
            .into_iter()
            .filter(|(k, _)| k.len() > 1 && k.first() == Some(&USER_ATTR_PREFIX))
            .map(|(k, v)| (k.slice(1..), v))
            .collect())
    }

    /// Sets a user attribute, creating the object.
    pub(super) fn set_user_attr(&mut self, name: &[u8], value: Bytes) -> Step<()> {
        if value.len() > ATTR_SIZE_MAX {
            return Err(EFBIG.into());
        }
        if name.len() > ATTR_NAME_LEN_MAX {
            return Err(ENAMETOOLONG.into());
        }
        self.count_attr(name, value.len())?;
        self.create();
        self.view.set_attr(stored_name(name), value);
        self.delta.num_wr += 1;
        Ok(())
    }

    /// Counts an attribute that is set, and refuses it if the object's attributes together would be too large. The
    /// count leaves out what the vector replaces or removes, until it reaches the limit.
    fn count_attr(&mut self, name: &[u8], value: usize) -> Step<()> {
        let bytes = name.len() + 1 + value + ENTRY_OVERHEAD;
        let known = match self.attr_bytes {
            Some(n) => n,
            None if !self.view.has_base() => 0,
            None => self.view.attrs()?.iter().map(|(k, v)| k.len() + v.len() + ENTRY_OVERHEAD).sum(),
        };
        let mut sum = known + bytes;
        if sum > OBJECT_ATTRS_MAX {
            let mut after = self.view.attrs_after()?;
            after.remove(&stored_name(name));
            sum = bytes + after.iter().map(|(k, n)| k.len() + n + ENTRY_OVERHEAD).sum::<usize>();
        }
        if sum > OBJECT_ATTRS_MAX {
            tracing::info!(
                object = %self.head, client = %self.env.client, bytes = sum, max = OBJECT_ATTRS_MAX,
                "attribute refused: the object's attributes together would be too large"
            );
            return Err(EFBIG.into());
        }
        self.attr_bytes = Some(sum);
        Ok(())
    }

    /// Removes a user attribute.
    pub(super) fn rm_user_attr(&mut self, name: &[u8]) -> Step<()> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        self.view.rm_attr(stored_name(name));
        self.delta.num_wr += 1;
        Ok(())
    }

    pub(super) fn op_getxattr(&mut self, op: &mut OsdOp) -> Step<i32> {
        let (name, _) = op.xattr_payload().ok_or(EINVAL)?;
        op.outdata = self.user_attr(&name)?;
        Ok(0)
    }

    pub(super) fn op_getxattrs(&mut self, op: &mut OsdOp) -> Step<i32> {
        op.outdata = self.user_attrs()?.to_bytes(Features::PACIFIC);
        self.count_read(op.outdata.len());
        Ok(0)
    }

    pub(super) fn op_setxattr(&mut self, op: &OsdOp) -> Step<i32> {
        let (name, value) = op.xattr_payload().ok_or(EINVAL)?;
        // The message's buffer must not live as long as the attribute.
        self.set_user_attr(&name, Bytes::copy_from_slice(&value))?;
        Ok(0)
    }

    pub(super) fn op_rmxattr(&mut self, op: &OsdOp) -> Step<i32> {
        let (name, _) = op.xattr_payload().ok_or(EINVAL)?;
        self.rm_user_attr(&name)?;
        Ok(0)
    }

    pub(super) fn op_cmpxattr(&mut self, op: &OsdOp) -> Step<i32> {
        let a = op.xattr();
        let (name, value) = op.xattr_payload().ok_or(EINVAL)?;
        let have = match self.user_attr(&name) {
            Ok(v) => v,
            Err(Stop::Errno(ENODATA)) => Bytes::new(),
            Err(e) => return Err(e),
        };
        let holds = match a.cmp_mode {
            1 => compare(a.cmp_op, value[..].cmp(&have[..])),
            2 => {
                let want = Reader::new(&value).u64().map_err(|_| EINVAL)?;
                compare(a.cmp_op, want.cmp(&leading_number(&have)))
            }
            _ => None,
        };
        if holds.ok_or(EINVAL)? { Ok(1) } else { Err(ECANCELED.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_text() {
        assert_eq!(leading_number(b""), 0);
        assert_eq!(leading_number(b" 42x"), 42);
        assert_eq!(leading_number(b"18446744073709551616"), u64::MAX);
        assert_eq!(leading_number(b"abc"), 0);
    }
}
