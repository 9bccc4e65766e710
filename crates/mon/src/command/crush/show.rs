//! Commands that show the CRUSH map.

use crate::command::osd::tree::crush_weight;
use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use base::{OsdId, PoolId, errno};
use cluster::OsdMap;
use cluster::crush::{CHOOSE_ARGS_COMPAT, CrushMap, Rule, Tunables, op};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd crush dump", "osd", "r", 0, dump, "show the CRUSH map"),
    cmd("osd crush ls node:String", "osd", "r", 0, ls, "list the items of a bucket"),
    cmd("osd crush class ls", "osd", "r", 0, class_ls, "list device classes"),
    cmd("osd crush class ls-osd class:String", "osd", "r", 0, class_ls_osd, "list the OSDs of a class"),
    cmd("osd crush get-device-class ids:String*", "osd", "r", 0, get_class, "show the class of OSDs"),
    cmd("osd crush rule ls", "osd", "r", 0, rule_ls, "list rules"),
    cmd("osd crush rule list", "osd", "r", cf::DEPRECATED, rule_ls, "list rules"),
    cmd("osd crush rule ls-by-class class:String", "osd", "r", 0, rule_by_class, "list the rules that use a class"),
    cmd("osd crush rule dump name:String?", "osd", "r", 0, rule_dump, "show a rule, or all"),
    cmd("osd crush show-tunables", "osd", "r", 0, tunables, "show the tunables"),
    cmd("osd crush get-tunable tunable:Choices(straw_calc_version)", "osd", "r", 0, get_tunable, "show one tunable"),
    cmd("osd crush weight-set ls", "osd", "r", 0, set_ls, "list weight sets"),
    cmd("osd crush weight-set dump", "osd", "r", 0, set_dump, "show weight sets"),
];

/// The steps of a rule as `rule dump` shows them.
fn rule_tree(crush: &CrushMap, id: i32, r: &Rule) -> J {
    let name = |item: i32| crush.name_of(item).unwrap_or_default().to_owned();
    let steps: J = r
        .steps
        .iter()
        .map(|s| {
            let mut j = obj! { "op": op::name(s.op) };
            match s.op {
                op::TAKE => {
                    j.put("item", s.arg1).put("item_name", name(s.arg1));
                }
                op::CHOOSE_FIRSTN | op::CHOOSE_INDEP | op::CHOOSELEAF_FIRSTN | op::CHOOSELEAF_INDEP => {
                    j.put("num", s.arg1).put("type", crush.type_name(s.arg2).unwrap_or_default());
                }
                op::NOOP | op::EMIT => {}
                op::SET_CHOOSE_TRIES..=op::SET_CHOOSELEAF_STABLE => {
                    j.put("num", s.arg1);
                }
                _ => {
                    j = obj! { "opcode": s.op, "arg1": s.arg1, "arg2": s.arg2 };
                }
            }
            j
        })
        .collect();
    obj! {
        "rule_id": id,
        "rule_name": crush.rule_name(id).unwrap_or_default(),
        "ruleset": r.ruleset,
        "type": r.kind,
        "min_size": r.min_size,
        "max_size": r.max_size,
        "steps": steps,
    }
}

fn tunables_tree(crush: &CrushMap) -> J {
    let t = &crush.tunables;
    let norm = |t: &Tunables| Tunables { straw_calc_version: 0, msr: None, ..*t };
    let is = |b: bool| i32::from(b);
    let uses = |ops: &[u32]| crush.iter_rules().any(|(_, r)| r.steps.iter().any(|s| ops.contains(&s.op)));
    let has_v4 = crush.iter_buckets().any(|b| b.alg() == cluster::crush::BucketAlg::Straw2);
    let legacy_tries = t.choose_local_tries != 2 || t.choose_local_fallback_tries != 5 || t.choose_total_tries != 19;
    obj! {
        "choose_local_tries": t.choose_local_tries,
        "choose_local_fallback_tries": t.choose_local_fallback_tries,
        "choose_total_tries": t.choose_total_tries,
        "chooseleaf_descend_once": t.chooseleaf_descend_once,
        "chooseleaf_vary_r": t.chooseleaf_vary_r,
        "chooseleaf_stable": t.chooseleaf_stable,
        "straw_calc_version": t.straw_calc_version,
        "allowed_bucket_algs": t.allowed_bucket_algs,
        "profile": t.profile_name(),
        "optimal_tunables": is(norm(t) == norm(&Tunables::JEWEL)),
        "legacy_tunables": is(norm(t) == norm(&Tunables::LEGACY)),
        "minimum_required_version": t.min_required_version(),
        "require_feature_tunables": is(legacy_tries),
        "require_feature_tunables2": is(t.chooseleaf_descend_once != 0),
        "has_v2_rules": is(uses(&[op::CHOOSE_INDEP, op::CHOOSELEAF_INDEP, op::SET_CHOOSE_TRIES, op::SET_CHOOSELEAF_TRIES])),
        "require_feature_tunables3": is(t.chooseleaf_vary_r != 0),
        "has_v3_rules": is(uses(&[op::SET_CHOOSELEAF_VARY_R])),
        "has_v4_buckets": is(has_v4),
        "require_feature_tunables5": is(t.chooseleaf_stable != 0),
        "has_v5_rules": is(uses(&[op::SET_CHOOSELEAF_STABLE])),
    }
}

fn choose_args_tree(crush: &CrushMap) -> J {
    let mut out = J::object();
    for (key, args) in &crush.choose_args {
        let list: J = args
            .iter()
            .map(|(slot, a)| {
                let id = -1 - i64::try_from(*slot).unwrap_or(i64::MAX - 1);
                let mut j = obj! { "bucket_id": id };
                if !a.weight_sets.is_empty() {
                    let sets: J =
                        a.weight_sets.iter().map(|w| w.iter().map(|w| crush_weight(*w)).collect::<J>()).collect();
                    j.put("weight_set", sets);
                }
                if !a.ids.is_empty() {
                    j.put("ids", a.ids.clone());
                }
                j
            })
            .collect();
        out.put(key.to_string(), list);
    }
    out
}

/// The whole CRUSH map as a tree, for `osd crush dump`.
pub(in crate::command) fn dump_tree(crush: &CrushMap) -> J {
    let devices: J = (0..crush.max_devices)
        .filter(|d| crush.name_of(*d).is_some())
        .map(|d| {
            let mut j = obj! { "id": d, "name": crush.name_of(d).unwrap_or_default() };
            if let Some(c) = crush.class_of(d) {
                j.put("class", c);
            }
            j
        })
        .collect();
    let buckets: J = crush
        .iter_buckets()
        .map(|b| {
            let items: J = b
                .items
                .iter()
                .enumerate()
                .map(|(pos, i)| obj! { "id": *i, "weight": b.item_weight(pos), "pos": pos })
                .collect();
            let mut j = obj! { "id": b.id };
            if let Some(n) = crush.name_of(b.id) {
                j.put("name", n);
            }
            j.put("type_id", i32::from(b.kind))
                .put("type_name", crush.type_name(b.kind.into()).unwrap_or_default())
                .put("weight", b.weight)
                .put("alg", b.alg().name())
                .put("hash", if b.hash == 0 { "rjenkins1" } else { "unknown" })
                .put("items", items);
            j
        })
        .collect();
    obj! {
        "devices": devices,
        "types": crush.type_names.iter().map(|(t, n)| obj! { "type_id": *t, "name": n }).collect::<J>(),
        "buckets": buckets,
        "rules": crush.iter_rules().map(|(id, r)| rule_tree(crush, id, r)).collect::<J>(),
        "tunables": tunables_tree(crush),
        "choose_args": choose_args_tree(crush),
    }
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    c.show_line("crush_map", &dump_tree(&map.crush))
}

fn list(c: &Ctx<'_>, root: &str, names: &[String]) -> Res<CommandOutcome> {
    c.tree(root, || names.iter().collect::<J>()).line_each()
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let node = c.args.str("node")?;
    let map = c.state.osdmap.clone();
    let Some(id) = map.crush.id_of(&node) else {
        return refuse(errno::ENOENT, format!("node '{node}' does not exist"));
    };
    let mut names: Vec<String> = match map.crush.bucket(id) {
        None => vec![node],
        Some(b) => b.items.iter().filter_map(|i| map.crush.name_of(*i)).map(str::to_owned).collect(),
    };
    names.sort();
    list(c, "items", &names)
}

fn class_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    c.show("crush_classes", &map.crush.class_names.values().collect())
}

fn class_ls_osd(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let class = c.args.str("class")?;
    let map = c.state.osdmap.clone();
    let osds = map.crush.class_id(&class).map(|id| map.crush.devices_of_class(id)).unwrap_or_default();
    c.tree("osds", || osds.into_iter().collect::<J>()).line_each()
}

fn get_class(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let mut osds: Vec<OsdId> = Vec::new();
    for w in c.args.list("ids") {
        if matches!(w.as_str(), "all" | "any" | "*") {
            osds = map.osds().collect();
            break;
        }
        let Some(o) = crate::command::language::args::parse_osd(&w) else {
            return invalid(format!("unable to parse osd id:\"{w}\""));
        };
        osds.push(o);
    }
    osds.retain(|o| map.exists(*o));
    let class = |o: &OsdId| map.crush.class_of(o.0).unwrap_or_default().to_owned();
    let tree = || osds.iter().map(|o| obj! { "osd": o.0, "device_class": class(o) }).collect::<J>();
    let text = || match osds.as_slice() {
        [one] => format!("{}\n", class(one)),
        all => all.iter().map(|o| format!("{o} {}\n", class(o))).collect(),
    };
    c.tree("osd_device_classes", tree).text(text)
}

fn rule_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let names: Vec<String> = map.crush.rule_names.values().cloned().collect();
    list(c, "rules", &names)
}

fn rule_by_class(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let class = c.args.str("class")?;
    let map = c.state.osdmap.clone();
    let Some(id) = map.crush.class_id(&class) else {
        return refuse(errno::ENOENT, format!("failed to get rules by class '{class}'"));
    };
    let names: Vec<String> =
        map.crush.rules_of_class(id).into_iter().filter_map(|r| map.crush.rule_name(r)).map(str::to_owned).collect();
    list(c, "rules", &names)
}

fn rule_dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let j = match c.args.opt("name").filter(|n| !n.is_empty()) {
        None => map.crush.iter_rules().map(|(id, r)| rule_tree(&map.crush, id, r)).collect(),
        Some(n) => {
            let id = map.crush.rule_id(&n);
            let r = id.and_then(|id| Some((id, map.crush.rule(id)?)));
            let (id, r) = r.ok_or_else(|| Refused::new(errno::ENOENT, format!("unknown crush rule '{n}'")))?;
            rule_tree(&map.crush, id, r)
        }
    };
    c.show_line("rules", &j)
}

fn tunables(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    c.show_line("tunables", &tunables_tree(&map.crush))
}

fn get_tunable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let v = c.state.osdmap.crush.tunables.straw_calc_version;
    c.tree("tunable", || obj! { "straw_calc_version": v }).text(|| format!("{v}\n"))
}

/// Name of a weight set.
pub(in crate::command) fn set_name(map: &OsdMap, key: i64) -> String {
    if key == CHOOSE_ARGS_COMPAT {
        return "(compat)".into();
    }
    map.pool_name(PoolId(key)).map_or_else(|| key.to_string(), str::to_owned)
}

fn set_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let names: Vec<String> = map.crush.choose_args.keys().map(|k| set_name(&map, *k)).collect();
    list(c, "weight_sets", &names)
}

fn set_dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    c.show("weight_sets", &choose_args_tree(&map.crush))
}
