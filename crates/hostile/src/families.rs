//! The families: what is decoded, and seeds for it.

mod auth;
mod caps;
mod class_inputs;
mod crush;
mod frames;
mod maps;
mod messages;
mod store_pages;
mod store_records;
mod structures;

/// Decoders that read one kind of input.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name of the fuzz target and of the corpus.
    pub name: &'static str,
    /// Decodes the input; what it decodes must also survive being encoded and decoded again.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What the family may allocate whatever its input is.
    pub alloc_fixed: usize,
    /// How much longer an input takes than a message: the bounded test gives the family fewer of them.
    pub cost: u64,
}

/// Enough for decoders, whose memory follows from the size of their input.
const ALLOC_DECODER: usize = 512 << 10;

/// Every family.
pub const ALL: &[Family] = &[
    messages::FAMILY,
    structures::FAMILY,
    maps::FAMILY,
    crush::FAMILY,
    caps::FAMILY,
    auth::FAMILY,
    frames::FAMILY,
    class_inputs::FAMILY,
    store_records::FAMILY,
    store_pages::FAMILY,
];

/// Runs the family of that name.
///
/// # Panics
/// If there is none, or if its decoders have a bug.
pub fn run(name: &str, input: &[u8]) {
    match ALL.iter().find(|f| f.name == name) {
        Some(f) => (f.run)(input),
        None => panic!("no family {name}"),
    }
}

/// Selects one of several decoders of a family by the first byte of the input.
fn select<'a, T: Copy>(of: &[T], input: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (which, rest) = input.split_first()?;
    Some((*of.get(usize::from(*which) % of.len().max(1))?, rest))
}

/// Decodes, and if that succeeds, checks that the result survives both ways.
fn there_and_back<T: wire::Encode + wire::Decode>(input: &[u8]) {
    let bytes = bytes::Bytes::copy_from_slice(input);
    let Ok(v) = T::from_bytes(&bytes) else { return };
    let once = v.to_bytes(wire::Features::PACIFIC);
    let again = T::from_bytes(&once).unwrap_or_else(|e| panic!("own encoding refused: {e}"));
    assert!(again.to_bytes(wire::Features::PACIFIC) == once, "encoding is not stable");
}
