//! Makes and starts the OSDs of a cluster: stores of Belemnite and Ceph, or servers of the floor.

use super::super::conf::{self, OsdConf};
use super::super::daemon::{Daemon, spawn_on};
use super::super::remote::{self, Remote};
use super::super::system::System;
use super::super::{ExecError, nodes};
use super::{Making, io, write_private};
use crate::host::control::Control;
use crate::host::exec::random::{new_key, new_uuid};
use base::unreached;
use reactor::disk;
use serde_json::json;
use std::fs;
use std::sync::Arc;

impl Making<'_> {
    pub(super) fn make_osds(&mut self, control: &Control, osds: &[OsdConf]) -> Result<(), ExecError> {
        for (id, osd) in osds.iter().enumerate() {
            let (uuid, key) = (new_uuid(), new_key());
            let name = format!("osd.{id}");
            let ring = format!("[{name}]\n\tkey = {key}\n");
            match self.host_of(id) {
                Some(h) => {
                    h.run(&format!("mkdir {}", remote::quote(&name)))?;
                    h.write(&format!("{name}.keyring"), &ring)?;
                }
                None => {
                    let data = self.dir.join(&name);
                    io(&data, fs::create_dir_all(&data))?;
                    write_private(&self.dir.join(format!("{name}.keyring")), &ring)?;
                }
            }
            let secret = json!({ "cephx_secret": key }).to_string();
            let out = control.run(&json!({"prefix": "osd new", "uuid": uuid}), secret.as_bytes())?;
            if String::from_utf8_lossy(&out).trim() != id.to_string() {
                return Err(ExecError::Plan(format!("the monitor gave a new OSD another number than {id}")));
            }
            if self.system == System::Floor {
                let place = [format!("host={}", osd.host), "root=default".into()];
                let put = json!({"prefix": "osd crush create-or-move", "id": id, "weight": 1.0, "args": place});
                control.run(&put, &[])?;
            }
            self.uuids.push(uuid);
        }
        if self.system != System::Floor {
            self.make_stores()?;
        }
        if self.settings.is("written") {
            self.write_files()?;
        }
        Ok(())
    }

    /// Writes zeros where the OSDs' files have holes. All systems have their store in a file of one name.
    fn write_files(&self) -> Result<(), ExecError> {
        let size = self.settings.bytes("osd_size");
        (0..self.uuids.len()).try_for_each(|id| {
            let path = self.dir.join(format!("osd.{id}/block"));
            let failed = |what: String| ExecError::Plan(format!("{}: {what}", path.display()));
            let file =
                if self.system == System::Floor { disk::prepare(&path, Some(size), true) } else { disk::open(&path) };
            let file = file.map_err(|e| failed(e.to_string()))?;
            let filled = file.fill_holes(0, file.bytes()).and_then(|_| file.sync());
            filled.map_err(|e| failed(base::errno::name(e).into()))
        })
    }

    /// Makes the OSDs' stores.
    fn make_stores(&self) -> Result<(), ExecError> {
        let made: Vec<Result<(), ExecError>> = std::thread::scope(|s| {
            let each = self.uuids.iter().enumerate().map(|(id, uuid)| {
                s.spawn(move || {
                    let host = self.host_of(id);
                    let mut args = match &host {
                        Some(h) => self.on_host(h, id)?,
                        None => vec!["-c".into(), self.path("ceph.conf"), "-i".into(), id.to_string()],
                    };
                    args.extend(["--mkfs".into(), "--osd-uuid".into(), uuid.clone()]);
                    match self.system {
                        System::Belemnite if self.settings.text("device_paths").is_empty() => {
                            args.extend(["--size".into(), self.settings.text("osd_size").to_owned()]);
                        }
                        System::Belemnite => args.push("--force".into()),
                        _ => args.extend(["--setuser", "root", "--setgroup", "root"].map(String::from)),
                    }
                    match &host {
                        Some(h) => h.call(&args).map(|_| ()),
                        None => self.run("osd", &args),
                    }
                })
            });
            let all: Vec<_> = each.collect();
            all.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(ExecError::Plan("mkfs".into())))).collect()
        });
        made.into_iter().collect()
    }

    /// Address of the lab's monitor that all servers reach.
    pub(super) fn monitor_ip(&self) -> String {
        match self.hosts.first() {
            Some(h) => h.lab_ip.clone(),
            None if self.nodes.is_some() => nodes::host_ip(self.port),
            None => "127.0.0.1".to_owned(),
        }
    }

    /// Arguments of a server of the floor.
    fn floor(&self, osds: &[OsdConf], id: usize) -> Vec<String> {
        let own = self.path(&format!("osd.{id}/block"));
        let file = osds.get(id).and_then(|o| o.device.clone()).unwrap_or(own);
        let mut args: Vec<String> = Vec::new();
        let uuid = self.uuids.get(id).cloned().unwrap_or_else(|| unreached("each OSD was made with an identity"));
        for (flag, value) in [
            ("--id", id.to_string()),
            ("--monitor", format!("{}:{}", self.monitor_ip(), self.port)),
            ("--fsid", self.fsid.clone()),
            ("--uuid", uuid),
            ("--file", file),
            ("--size", self.settings.bytes("osd_size").to_string()),
        ] {
            args.extend([flag.to_owned(), value]);
        }
        for (n, o) in osds.iter().enumerate() {
            args.extend(["--server".to_owned(), format!("{}:{}", o.ip, conf::ports(self.port, n).0)]);
        }
        args
    }

    pub(super) fn start_osds(&mut self, osds: &[OsdConf]) -> Result<(), ExecError> {
        let per = self.settings.int("osds_per_device").max(1) as usize;
        let per_node = (self.settings.int("devices") as usize * per).max(1);
        for id in 0..osds.len() {
            if let Some(h) = self.host_of(id) {
                self.start_on(&h, id)?;
                continue;
            }
            let ns = self.nodes.as_ref().map(|x| x.name((id / per_node) as u64));
            match self.system {
                System::Floor => self.start_with("osd", &id.to_string(), ns, self.floor(osds, id))?,
                _ => self.start("osd", &id.to_string(), ns)?,
            }
            if let (Some(g), Some(d)) = (self.groups.get(id / per), self.daemons.last()) {
                g.add(d.child.id())?;
            }
        }
        Ok(())
    }

    /// Starts an OSD on a host.
    fn start_on(&mut self, host: &Arc<Remote>, id: usize) -> Result<(), ExecError> {
        let name = format!("osd.{id}");
        let mut line = self.on_host(host, id)?;
        if self.system != System::Belemnite {
            line.extend(["-f", "--setuser", "root", "--setgroup", "root"].map(String::from));
        }
        let (program, args) = host.daemon(&line);
        let (child, remote) = spawn_on(&self.dir, host, &name, &program, &args)?;
        self.daemons.push(Daemon { name, child, program, args, remote: Some(remote) });
        Ok(())
    }

    /// Program of an OSD on a host, with the arguments that select the OSD.
    fn on_host(&self, host: &Remote, id: usize) -> Result<Vec<String>, ExecError> {
        let mut line = match (&self.system, self.settings.text("host_binary")) {
            (System::Belemnite, "") => vec![format!("{}/belemnite", host.dir), "osd".into()],
            (System::Belemnite, path) => vec![path.to_owned(), "osd".into()],
            _ => vec!["ceph-osd".to_owned()],
        };
        line.extend(["-c".into(), format!("{}/ceph.conf", host.dir), "-i".into(), id.to_string()]);
        Ok(line)
    }
}
