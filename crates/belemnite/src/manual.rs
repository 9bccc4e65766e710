//! `belemnite completions` and `belemnite man-pages`: both come from the tree of commands, so they agree with it.

use clap::CommandFactory as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

type Error = Box<dyn std::error::Error>;

/// Shells with completions.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Shell {
    /// Bash: /usr/share/bash-completion/completions/belemnite
    Bash,
    /// Fish: /usr/share/fish/vendor_completions.d/belemnite.fish
    Fish,
    /// Zsh: /usr/share/zsh/vendor-completions/_belemnite
    Zsh,
}

/// `belemnite completions`
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the output
    shell: Shell,
}

/// `belemnite man-pages`
#[derive(Debug, clap::Args)]
pub(crate) struct ManPagesArgs {
    /// Existing directory for the files, such as /usr/local/share/man/man1
    dir: PathBuf,
}

/// Text of a shell's completions.
fn completions_of(shell: Shell) -> Vec<u8> {
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Zsh => clap_complete::Shell::Zsh,
    };
    let mut out = Vec::new();
    clap_complete::generate(generator, &mut crate::Belemnite::command(), "belemnite", &mut out);
    out
}

/// `belemnite completions`
pub(crate) fn completions(a: &CompletionsArgs) -> Result<(), Error> {
    let text = completions_of(a.shell);
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(&text).and_then(|()| out.flush())?)
}

/// `belemnite man-pages`
pub(crate) fn man_pages(a: &ManPagesArgs) -> Result<(), Error> {
    write_pages(&a.dir)
}

/// Writes a page for the program and for each of its commands.
///
/// # Errors
/// The directory does not exist, or a file cannot be written.
fn write_pages(dir: &Path) -> Result<(), Error> {
    if !dir.is_dir() {
        return Err(format!("{}: not a directory", dir.display()).into());
    }
    let command = crate::Belemnite::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of all commands that users call, as in `belemnite-osd-add`.
    fn paths(c: &clap::Command, before: &str, out: &mut Vec<String>) {
        let path = if before.is_empty() { c.get_name().to_owned() } else { format!("{before}-{}", c.get_name()) };
        c.get_subcommands().filter(|s| !s.is_hide_set()).for_each(|s| paths(s, &path, out));
        out.push(path);
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let dir = std::env::temp_dir().join(format!("belemnite-pages-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write_pages(&dir).unwrap();
        let mut all = Vec::new();
        paths(&crate::Belemnite::command(), "", &mut all);
        assert!(all.len() > 40, "{all:?}");
        for path in &all {
            let page = std::fs::read_to_string(dir.join(format!("{path}.1"))).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert!(page.contains(".SH SYNOPSIS") && page.contains(".TH"), "{path}");
        }
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), all.len());
        let add = std::fs::read_to_string(dir.join("belemnite-osd-add.1")).unwrap();
        assert!(add.contains(r"\-\-device"), "{add}");
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(write_pages(&dir).unwrap_err().to_string().contains("not a directory"));
    }

    #[test]
    fn completions_name_commands_and_options() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let text = String::from_utf8(completions_of(shell)).unwrap();
            assert!(["pool", "osd-size", "man-pages"].iter().all(|w| text.contains(w)), "{shell:?}");
        }
    }
}
