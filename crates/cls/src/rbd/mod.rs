//! Class `rbd`: all metadata of block images.
//!
//! The class serves many types of objects: an image's header (`rbd_header.<id>`), its id object (`rbd_id.<name>`), the
//! pool's directories (images, children, groups, namespaces, trash, mirroring), object maps, and data objects
//! (copy-up). Each has a file here. All except object maps, ids and data are omap entries, one key per field, in Ceph's
//! encoding.
//!
//! Errors: an absent key is `ENOENT`, an undecodable value `EIO`, undecodable input `EINVAL`.
//!
//! | module | contents |
//! | --- | --- |
//! | `bits` | `BitVector<2>`: two bits per object; the format of object maps on disk and on the wire |
//! | `children` | clones of a snapshot: the pool's `rbd_children` object (v1), the parent's own header (v2) |
//! | `data` | data objects: copy-up from a parent, removal of zeroes, and a guard on snapshot contexts |
//! | `directory` | directories: names and ids of images (`rbd_directory`, `rbd_id.<name>`), `rbd_namespace` |
//! | `group` | groups of images: `rbd_group_directory`, `rbd_group_header.<id>`, an image's reference |
//! | `header` | the image header: size, features, flags, striping, times |
//! | `metadata` | key-value metadata of an image or pool: keys `metadata_<key>`, unencoded values |
//! | `migration` | live migration of an image: key `migration`, the feature bit, and format 1's magic text |
//! | `mirror` | mirroring of a pool: `rbd_mirroring` (mode, peers, images) and `rbd_mirror_leader` |
//! | `object_map` | object maps: the existing data objects of an image or snapshot |
//! | `old` | snapshots of format 1 images, whose header is stored as object data |
//! | `parent` | parent of a cloned image: key `parent` |
//! | `snapshot` | snapshots of an image: keys `snapshot_<16 hex digits of the id>`, `snap_seq`, `snap_limit` |
//! | `trash` | `rbd_trash`: removed images that can be restored |
//! | `types` | encodings of class `rbd`: `cls_rbd.h`, `cls_rbd_types.h` |

mod bits;
mod children;
mod data;
mod directory;
mod group;
mod header;
mod metadata;
mod migration;
mod mirror;
mod object_map;
mod old;
mod parent;
mod snapshot;
mod trash;
mod types;

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{ENTRIES_BYTES, ENTRIES_MAX, OMAP_PAGE, bytes_of, enc, fail, join, omap_opt, omap_put, stored_as};
use base::errno::{E2BIG, ENOENT};
use bytes::Bytes;
use wire::{Decode, Encode};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("add_child", children::add_child),
    Method::rdwr("assert_snapc_seq", data::assert_snapc_seq),
    Method::rdwr("child_attach", children::child_attach),
    Method::rdwr("child_detach", children::child_detach),
    Method::rd("children_list", children::children_list),
    Method::rdwr("copyup", data::copyup),
    Method::rdwr("create", header::create),
    Method::rdwr("dir_add_image", directory::add_image),
    Method::rd("dir_get_id", directory::get_id_of_name),
    Method::rd("dir_get_name", directory::get_name_of_id),
    Method::rd("dir_list", directory::list),
    Method::rdwr("dir_remove_image", directory::remove_image),
    Method::rdwr("dir_rename_image", directory::rename_image),
    Method::rd("dir_state_assert", directory::state_assert),
    Method::rdwr("dir_state_set", directory::state_set),
    Method::rd("get_access_timestamp", header::get_access_timestamp),
    Method::rd("get_all_features", header::get_all_features),
    Method::rd("get_children", children::get_children),
    Method::rd("get_create_timestamp", header::get_create_timestamp),
    Method::rd("get_data_pool", header::get_data_pool),
    Method::rd("get_features", header::get_features),
    Method::rd("get_flags", header::get_flags),
    Method::rd("get_id", directory::get_id),
    Method::rd("get_modify_timestamp", header::get_modify_timestamp),
    Method::rd("get_object_prefix", header::get_object_prefix),
    Method::rd("get_parent", parent::get_parent),
    Method::rd("get_protection_status", snapshot::get_protection_status),
    Method::rd("get_size", header::get_size),
    Method::rd("get_snapcontext", snapshot::get_snapcontext),
    Method::rd("get_snapshot_name", snapshot::get_snapshot_name),
    Method::rd("get_snapshot_timestamp", snapshot::get_snapshot_timestamp),
    Method::rd("get_stripe_unit_count", header::get_stripe_unit_count),
    Method::rdwr("group_dir_add", group::dir_add),
    Method::rd("group_dir_list", directory::list),
    Method::rdwr("group_dir_remove", group::dir_remove),
    Method::rdwr("group_dir_rename", group::dir_rename),
    Method::rd("group_image_list", group::image_list),
    Method::rdwr("group_image_remove", group::image_remove),
    Method::rdwr("group_image_set", group::image_set),
    Method::rd("group_snap_get_by_id", group::snap_get_by_id),
    Method::rd("group_snap_list", group::snap_list),
    Method::rd("group_snap_list_order", group::snap_list_order),
    Method::rdwr("group_snap_remove", group::snap_remove),
    Method::rdwr("group_snap_set", group::snap_set),
    Method::rdwr("image_group_add", group::image_group_add),
    Method::rd("image_group_get", group::image_group_get),
    Method::rdwr("image_group_remove", group::image_group_remove),
    Method::rd("metadata_get", metadata::get),
    Method::rd("metadata_list", metadata::list),
    Method::rdwr("metadata_remove", metadata::remove),
    Method::rdwr("metadata_set", metadata::set),
    Method::rd("migration_get", migration::get_spec),
    Method::rdwr("migration_remove", migration::remove),
    Method::rdwr("migration_set", migration::set),
    Method::rdwr("migration_set_state", migration::set_state),
    Method::rd("mirror_image_get", mirror::image::get),
    Method::rd("mirror_image_get_image_id", mirror::image::get_image_id),
    Method::rd("mirror_image_instance_get", mirror::status::instance_get),
    Method::rd("mirror_image_instance_list", mirror::status::instance_list),
    Method::rd("mirror_image_list", mirror::image::list),
    Method::rd("mirror_image_map_list", mirror::image_map_list),
    Method::wr("mirror_image_map_remove", mirror::image_map_remove),
    Method::wr("mirror_image_map_update", mirror::image_map_update),
    Method::rdwr("mirror_image_remove", mirror::image::remove),
    Method::rdwr("mirror_image_set", mirror::image::set),
    Method::rdwr("mirror_image_snapshot_set_copy_progress", mirror::snapshot_set_copy_progress),
    Method::rdwr("mirror_image_snapshot_unlink_peer", mirror::snapshot_unlink_peer),
    Method::rd("mirror_image_status_get", mirror::status::get),
    Method::rd("mirror_image_status_get_summary", mirror::status::get_summary),
    Method::rd("mirror_image_status_list", mirror::status::list),
    Method::rdwr("mirror_image_status_remove", mirror::status::remove),
    Method::rdwr("mirror_image_status_remove_down", mirror::status::remove_down),
    Method::rdwr("mirror_image_status_set", mirror::status::set).promote(),
    Method::rdwr("mirror_instances_add", mirror::instances_add).promote(),
    Method::rd("mirror_instances_list", mirror::instances_list),
    Method::rdwr("mirror_instances_remove", mirror::instances_remove),
    Method::rd("mirror_mode_get", mirror::mode_get),
    Method::rdwr("mirror_mode_set", mirror::mode_set),
    Method::rdwr("mirror_peer_add", mirror::peer::add),
    Method::rd("mirror_peer_list", mirror::peer::list),
    Method::rdwr("mirror_peer_ping", mirror::peer::ping),
    Method::rdwr("mirror_peer_remove", mirror::peer::remove),
    Method::rdwr("mirror_peer_set_client", mirror::peer::set_client),
    Method::rdwr("mirror_peer_set_cluster", mirror::peer::set_cluster),
    Method::rdwr("mirror_peer_set_direction", mirror::peer::set_direction),
    Method::rd("mirror_remote_namespace_get", mirror::remote_namespace_get),
    Method::rdwr("mirror_remote_namespace_set", mirror::remote_namespace_set),
    Method::rd("mirror_uuid_get", mirror::uuid_get),
    Method::rdwr("mirror_uuid_set", mirror::uuid_set),
    Method::rdwr("namespace_add", directory::namespace_add),
    Method::rd("namespace_list", directory::namespace_list),
    Method::rdwr("namespace_remove", directory::namespace_remove),
    Method::rd("object_map_load", object_map::load),
    Method::rdwr("object_map_resize", object_map::resize),
    Method::rdwr("object_map_save", object_map::save),
    Method::rdwr("object_map_snap_add", object_map::snap_add),
    Method::rdwr("object_map_snap_remove", object_map::snap_remove),
    Method::rdwr("object_map_update", object_map::update),
    Method::rd("op_features_get", header::op_features_get),
    Method::rdwr("op_features_set", header::op_features_set),
    Method::rdwr("parent_attach", parent::parent_attach),
    Method::rdwr("parent_detach", parent::parent_detach),
    Method::rd("parent_get", parent::parent_get),
    Method::rd("parent_overlap_get", parent::parent_overlap_get),
    Method::rdwr("remove_child", children::remove_child),
    Method::rdwr("remove_parent", parent::remove_parent),
    Method::rdwr("set_access_timestamp", header::set_access_timestamp),
    Method::rdwr("set_features", header::set_features),
    Method::rdwr("set_flags", header::set_flags),
    Method::rdwr("set_id", directory::set_id),
    Method::rdwr("set_modify_timestamp", header::set_modify_timestamp),
    Method::rdwr("set_parent", parent::set_parent),
    Method::rdwr("set_protection_status", snapshot::set_protection_status),
    Method::rdwr("set_size", header::set_size),
    Method::rdwr("set_stripe_unit_count", header::set_stripe_unit_count),
    Method::rdwr("snap_add", old::add),
    Method::rd("snap_list", old::list),
    Method::rdwr("snap_remove", old::remove),
    Method::rdwr("snap_rename", old::rename),
    Method::rdwr("snapshot_add", snapshot::add),
    Method::rd("snapshot_get", snapshot::get),
    Method::rd("snapshot_get_limit", snapshot::get_limit),
    Method::rdwr("snapshot_remove", snapshot::remove),
    Method::rdwr("snapshot_rename", snapshot::rename),
    Method::rdwr("snapshot_set_limit", snapshot::set_limit),
    Method::rdwr("snapshot_trash_add", snapshot::trash_add),
    Method::rdwr("sparse_copyup", data::sparse_copyup),
    Method::rdwr("sparsify", data::sparsify),
    Method::rdwr("trash_add", trash::add),
    Method::rd("trash_get", trash::get),
    Method::rd("trash_list", trash::list),
    Method::rdwr("trash_remove", trash::remove),
    Method::rdwr("trash_state_set", trash::state_set),
];

/// Feature bits of images.
mod feature {
    pub(super) const LAYERING: u64 = 1;
    pub(super) const STRIPING: u64 = 1 << 1;
    pub(super) const EXCLUSIVE_LOCK: u64 = 1 << 2;
    pub(super) const OBJECT_MAP: u64 = 1 << 3;
    pub(super) const FAST_DIFF: u64 = 1 << 4;
    pub(super) const DEEP_FLATTEN: u64 = 1 << 5;
    pub(super) const JOURNALING: u64 = 1 << 6;
    pub(super) const DATA_POOL: u64 = 1 << 7;
    pub(super) const OPERATIONS: u64 = 1 << 8;
    pub(super) const MIGRATING: u64 = 1 << 9;
    pub(super) const NON_PRIMARY: u64 = 1 << 10;
    pub(super) const DIRTY_CACHE: u64 = 1 << 11;
    /// Features that a client must support to write.
    pub(super) const ALL: u64 = (1 << 12) - 1;
    /// Features that a client must support to read.
    pub(super) const INCOMPATIBLE: u64 = LAYERING | STRIPING | DATA_POOL | DIRTY_CACHE;
    /// Features that can be enabled and disabled.
    pub(super) const MUTABLE: u64 = EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
    /// Features that can only be disabled.
    pub(super) const DISABLE_ONLY: u64 = DEEP_FLATTEN;
    /// Features that only the class itself sets.
    pub(super) const INTERNAL: u64 = OPERATIONS | MIGRATING;
}

/// Operation feature bits of images, which record operations that clients must support.
mod op_feature {
    pub(super) const CLONE_PARENT: u64 = 1;
    pub(super) const CLONE_CHILD: u64 = 1 << 1;
    pub(super) const GROUP: u64 = 1 << 2;
    pub(super) const SNAP_TRASH: u64 = 1 << 3;
    pub(super) const ALL: u64 = CLONE_PARENT | CLONE_CHILD | GROUP | SNAP_TRASH;
}

/// Value of a key; `None` if absent.
fn get<T: Decode>(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<Option<T>> {
    omap_opt(c, key)?.map(|b| stored_as(&b)).transpose()
}

/// Value of a key; `ENOENT` if absent.
fn need<T: Decode>(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<T> {
    get(c, key)?.ok_or(ENOENT.into())
}

/// Sets a key.
fn put<T: Encode + ?Sized>(c: &mut dyn ObjectCtx, key: &[u8], value: &T) -> ClsResult<()> {
    omap_put(c, Bytes::copy_from_slice(key), enc(|w| w.put(value)))
}

/// Removes a key; succeeds if the key or the object is absent.
fn drop_key(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<()> {
    match c.omap_rm(key) {
        Err(e) if e.is(ENOENT) => Ok(()),
        r => r,
    }
}

/// Encodes a value as output.
fn answer<T: Encode + ?Sized>(value: &T) -> ClsResult<Output> {
    Ok(enc(|w| w.put(value)).into())
}

/// Fails with `ENOENT` unless the object exists.
fn must_exist(c: &mut dyn ObjectCtx) -> ClsResult<()> {
    c.stat().map(|_| ())
}

/// Whether an image id is valid: letters and digits.
fn valid_id(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}

/// Up to `max` entries with keys after `prefix + start_after` that begin with `prefix`; the prefix is removed from the
/// keys. Callers take fewer than `max` for the end of the list, so more than [`ENTRIES_MAX`] with
/// [`ENTRIES_BYTES`] are `E2BIG`.
fn entries(c: &mut dyn ObjectCtx, prefix: &[u8], start_after: &[u8], max: u64) -> ClsResult<Vec<(Bytes, Bytes)>> {
    let mut after = join(prefix, start_after);
    let (mut all, mut bytes) = (Vec::new(), 0);
    while (all.len() as u64) < max {
        let left = max - all.len() as u64;
        let (page, more) = c.omap_list(&after, prefix, left.min(OMAP_PAGE as u64) as usize)?;
        let Some((last, _)) = page.last() else { break };
        after = last.clone();
        bytes += bytes_of(&page);
        if bytes > ENTRIES_BYTES || all.len() + page.len() > ENTRIES_MAX {
            return fail(E2BIG);
        }
        all.extend(page.into_iter().map(|(k, v)| (k.slice(prefix.len()..), v)));
        if !more {
            break;
        }
    }
    Ok(all)
}
