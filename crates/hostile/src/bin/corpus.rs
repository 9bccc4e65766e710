//! Writes the seeds of every family as files, the start corpus of the fuzz targets:
//! `cargo run -p belemnite-hostile --bin corpus -- fuzz/corpus`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let out = std::env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".to_owned());
    for family in hostile::ALL {
        let dir = Path::new(&out).join(family.name);
        std::fs::create_dir_all(&dir)?;
        for (i, seed) in (family.seeds)().iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{i:04}")), seed)?;
        }
    }
    Ok(())
}
