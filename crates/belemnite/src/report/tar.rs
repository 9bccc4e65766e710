//! A tar archive of regular files in memory, in the format of POSIX (`ustar`).

/// Size of a block.
const BLOCK: usize = 512;
/// Longest name of a file.
const NAME_MAX: usize = 100;

/// Appends a file, readable for its owner only. A name beyond 100 bytes is cut; `seconds` is the time of change since 1970.
pub(super) fn append(out: &mut Vec<u8>, name: &str, seconds: u64, content: &[u8]) {
    let mut h = [0u8; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        if let Some(place) = h.get_mut(at..at + text.len()) {
            place.copy_from_slice(text);
        }
    };
    put(0, name.as_bytes().get(..NAME_MAX).unwrap_or(name.as_bytes()));
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, format!("{seconds:011o}\0").as_bytes());
    // The sum counts its own field as blanks.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = h.iter().map(|b| u32::from(*b)).sum();
    let sum = format!("{sum:06o}\0 ");
    if let Some(place) = h.get_mut(148..148 + sum.len()) {
        place.copy_from_slice(sum.as_bytes());
    }
    out.extend_from_slice(&h);
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
}

/// Ends the archive.
pub(super) fn finish(out: &mut Vec<u8>) {
    out.resize(out.len() + 2 * BLOCK, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_the_archive() {
        let mut t = Vec::new();
        append(&mut t, "a/one", 1_700_000_000, b"first");
        append(&mut t, &"n".repeat(300), 0, &[7; 1000]);
        append(&mut t, "empty", 0, b"");
        finish(&mut t);
        let path = std::env::temp_dir().join(format!("belemnite-tar-{}", std::process::id()));
        std::fs::write(&path, &t).unwrap();
        let run = |args: &[&str]| {
            let out = std::process::Command::new("tar").args(args).arg("-f").arg(&path).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()
        };
        let list = run(&["--utc", "-tv"]);
        assert!(list.contains("-rw-------") && list.contains("2023-11-14 22:13 a/one"), "{list}");
        assert_eq!(list.lines().count(), 3);
        let out = std::process::Command::new("tar").args(["-xOf"]).arg(&path).arg("a/one").output().unwrap();
        assert_eq!(out.stdout, b"first");
        std::fs::remove_file(&path).unwrap();
    }
}
