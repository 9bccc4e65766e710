//! Loads of whole objects and of file metadata: which kind of operation comes next, and on which object or file.
//!
//! Objects and files are known by their number; name, size and contents follow from it. A [`Book`] keeps the numbers
//! that exist. Invariant: a number that an operation holds is not given out for removal, so an operation never finds
//! its object removed by another one of the same load.
//!
//! Tests: below (`a_number_in_use_is_not_removed`).

use super::pattern::unit;
use base::rng::Rng;
use std::collections::HashMap;

/// Largest size that [`Sizes::Archive`] draws, in bytes.
const ARCHIVE_MAX: u64 = 4 << 20;
/// Smallest size that [`Sizes::Archive`] draws, in bytes.
const ARCHIVE_MIN: u64 = 64;
/// Standard deviation of the logarithm of an archive's sizes: their mean is seven times their median.
const ARCHIVE_SIGMA: f64 = 1.97;
/// Numbers that are tried before a removal gives up: each tried one is in use by another operation.
const TRIES: usize = 16;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Writes a new object.
    Put,
    /// Reads an object.
    Get,
    /// Reads an object's size.
    Head,
    /// Lists a page of names.
    List,
    /// Removes an object.
    Delete,
    /// Makes a file and writes it.
    Create,
    /// Reads a file's attributes.
    Stat,
    /// Gives a file another name.
    Rename,
    /// Removes a file.
    Unlink,
    /// Reads all names of a directory.
    Readdir,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Put,
        Self::Get,
        Self::Head,
        Self::List,
        Self::Delete,
        Self::Create,
        Self::Stat,
        Self::Rename,
        Self::Unlink,
        Self::Readdir,
    ];

    /// Name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::Readdir => "readdir",
        }
    }

    /// Use that the operation makes of the numbers of a [`Book`].
    #[must_use]
    pub fn needs(self) -> Needs {
        match self {
            Self::Put | Self::Create => Needs::New,
            Self::Get | Self::Head | Self::Stat => Needs::Any,
            Self::Delete | Self::Unlink => Needs::Taken,
            Self::Rename => Needs::Moved,
            Self::List | Self::Readdir => Needs::Nothing,
        }
    }
}

/// Use that an operation makes of the numbers of a [`Book`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Adds a number.
    New,
    /// Uses a number that exists.
    Any,
    /// Removes a number.
    Taken,
    /// Removes a number and adds another.
    Moved,
    /// Uses no number.
    Nothing,
}

/// Kinds of operations with their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<(Kind, u64)>);

impl Mix {
    /// Operations of one kind.
    #[must_use]
    pub fn only(kind: Kind) -> Self {
        Self(vec![(kind, 1)])
    }

    /// The mix of a job: the name of a kind, `mixed` for objects, or `mixed-files`. `None` for another name.
    #[must_use]
    pub fn of_job(job: &str) -> Option<Self> {
        if let Some(k) = Kind::ALL.into_iter().find(|k| k.name() == job) {
            return Some(Self::only(k));
        }
        match job {
            "mixed" => Some(Self(vec![
                (Kind::Get, 45),
                (Kind::Head, 25),
                (Kind::Put, 15),
                (Kind::Delete, 10),
                (Kind::List, 5),
            ])),
            "mixed-files" => Some(Self(vec![
                (Kind::Stat, 50),
                (Kind::Create, 20),
                (Kind::Unlink, 15),
                (Kind::Rename, 10),
                (Kind::Readdir, 5),
            ])),
            _ => None,
        }
    }

    /// Draws a kind.
    pub fn draw(&self, rng: &mut Rng) -> Kind {
        let all = self.0.iter().map(|(_, w)| w).sum();
        let mut at = rng.below(all);
        for (kind, weight) in &self.0 {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        self.0.first().map_or(Kind::Get, |(k, _)| *k)
    }

    /// The kinds of this mix.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.0.iter().map(|(k, _)| *k)
    }
}

/// Sizes of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike, in bytes.
    Fixed(u64),
    /// As in an archive of many small files: a logarithmic normal distribution with this median in bytes.
    Archive(u64),
}

impl Sizes {
    /// Size in bytes of the object of this number.
    #[must_use]
    pub fn of(self, seed: u64, number: u64) -> u64 {
        match self {
            Self::Fixed(n) => n,
            Self::Archive(median) => {
                let mut rng = Rng::new(seed ^ number.rotate_left(32));
                // Box and Muller's transform of two uniform numbers to a normal one.
                let (a, b) = (1.0 - unit(&mut rng), unit(&mut rng));
                let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
                let size = median as f64 * (ARCHIVE_SIGMA * normal).exp();
                (size as u64).clamp(ARCHIVE_MIN, ARCHIVE_MAX)
            }
        }
    }
}

/// Numbers of the objects that exist.
#[derive(Debug, Default)]
pub struct Book {
    next: u64,
    live: Vec<u64>,
    /// Operations that use a number, where there are any.
    users: HashMap<u64, u32>,
}

impl Book {
    /// A book in which the numbers below `count` exist.
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self { next: count, live: (0..count).collect(), users: HashMap::new() }
    }

    /// A number for a new object.
    pub fn begin_new(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Records that the object of a new number exists.
    pub fn end_new(&mut self, number: u64) {
        self.live.push(number);
    }

    /// A random number to use; [`Book::release`] ends the use. `None` if none exists.
    pub fn any(&mut self, rng: &mut Rng) -> Option<u64> {
        let n = *self.live.get(rng.below(self.live.len() as u64) as usize)?;
        *self.users.entry(n).or_insert(0) += 1;
        Some(n)
    }

    /// Ends the use of a number.
    pub fn release(&mut self, number: u64) {
        if let Some(n) = self.users.get_mut(&number) {
            *n -= 1;
            if *n == 0 {
                self.users.remove(&number);
            }
        }
    }

    /// A random number to remove, which no other operation uses; `None` if none was found.
    pub fn take(&mut self, rng: &mut Rng) -> Option<u64> {
        for _ in 0..TRIES {
            let at = rng.below(self.live.len() as u64) as usize;
            let n = *self.live.get(at)?;
            if !self.users.contains_key(&n) {
                return Some(self.live.swap_remove(at));
            }
        }
        None
    }

    /// Numbers that exist.
    #[must_use]
    pub fn live(&self) -> &[u64] {
        &self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_mixes_of_kinds() {
        for k in Kind::ALL {
            assert_eq!(Mix::of_job(k.name()), Some(Mix::only(k)));
        }
        assert_eq!(Mix::of_job("randread"), None);
        let (mix, mut rng) = (Mix::of_job("mixed").unwrap(), Rng::new(1));
        let mut hits: HashMap<Kind, u32> = HashMap::new();
        for _ in 0..10_000 {
            *hits.entry(mix.draw(&mut rng)).or_default() += 1;
        }
        assert_eq!(hits.len(), 5);
        assert!((4_300..4_700).contains(&hits[&Kind::Get]) && (400..600).contains(&hits[&Kind::List]), "{hits:?}");
    }

    #[test]
    fn sizes_of_an_archive_follow_from_the_number() {
        let s = Sizes::Archive(3 << 10);
        let mut all: Vec<u64> = (0..20_000).map(|n| s.of(7, n)).collect();
        assert_eq!(s.of(7, 11), all[11]);
        assert_ne!(s.of(8, 11), all[11]);
        all.sort_unstable();
        let (median, mean) = (all[10_000] as f64, all.iter().sum::<u64>() as f64 / 20_000.0);
        assert!((2_900.0..3_250.0).contains(&median), "{median}");
        assert!((4.0..8.0).contains(&(mean / median)), "{mean} {median}");
        assert!(all[0] >= ARCHIVE_MIN && all[19_999] <= ARCHIVE_MAX);
        assert_eq!(Sizes::Fixed(5).of(1, 2), 5);
    }

    #[test]
    fn a_number_in_use_is_not_removed() {
        let (mut b, mut rng) = (Book::new(1), Rng::new(1));
        let n = b.any(&mut rng).unwrap();
        assert_eq!(b.take(&mut rng), None);
        let twice = b.any(&mut rng).unwrap();
        b.release(twice);
        assert_eq!(b.take(&mut rng), None, "the first use goes on");
        b.release(n);
        assert_eq!(b.take(&mut rng), Some(0));
        assert_eq!((b.any(&mut rng), b.live().len()), (None, 0));
        let new = b.begin_new();
        assert_eq!((new, b.any(&mut rng)), (1, None), "not there before it is written");
        b.end_new(new);
        assert_eq!(b.any(&mut rng), Some(1));
    }
}
