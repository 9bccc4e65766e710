//! Class `rgw`: bucket indexes and other lists of radosgw.
//!
//! `types`: encodings; `keys`: omap keys; `index`: state of a shard; `objects`: changes of objects; `olh`: versions;
//! `list`: listings; `bi`: raw entries and checks; `bilog`: change log; `usage`, `gc`, `lc`, `reshard`: lists; `obj`:
//! data objects. Stored formats: see the modules. A shard's omap header is its [`types::Header`].

mod bi;
mod bilog;
pub(crate) mod gc;
mod index;
mod keys;
mod lc;
mod list;
mod obj;
mod objects;
mod olh;
mod reshard;
#[cfg(test)]
pub(crate) mod tests;
mod types;
mod usage;

use crate::registry::Method;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rd("bi_get", bi::get),
    Method::rd("bi_list", bi::list),
    Method::rd("bi_log_list", bilog::list),
    Method::rdwr("bi_log_resync", bilog::resync),
    Method::rdwr("bi_log_stop", bilog::stop),
    Method::rdwr("bi_log_trim", bilog::trim),
    Method::rdwr("bi_put", bi::put),
    Method::rdwr("bi_put_entries", bi::put_entries),
    Method::rd("bucket_check_index", bi::check),
    Method::rdwr("bucket_clear_olh", olh::clear),
    Method::rdwr("bucket_complete_op", objects::complete),
    Method::rdwr("bucket_init_index", objects::init_index),
    Method::rdwr("bucket_init_index2", objects::init_index),
    Method::rdwr("bucket_link_olh", olh::link),
    Method::rd("bucket_list", list::list),
    Method::rdwr("bucket_prepare_op", objects::prepare),
    Method::rd("bucket_read_olh_log", olh::read_log),
    Method::rdwr("bucket_rebuild_index", bi::rebuild),
    Method::rdwr("bucket_set_tag_timeout", objects::set_tag_timeout),
    Method::rdwr("bucket_trim_olh_log", olh::trim_log),
    Method::rdwr("bucket_unlink_instance", olh::unlink_instance),
    Method::rdwr("bucket_update_stats", objects::update_stats),
    Method::rdwr("clear_bucket_resharding", reshard::clear_state),
    Method::rdwr("dir_suggest_changes", objects::suggest),
    Method::rdwr("gc_defer_entry", gc::defer_entry),
    Method::rd("gc_list", gc::list),
    Method::rdwr("gc_remove", gc::remove),
    Method::rdwr("gc_set_entry", gc::set_entry),
    Method::rd("get_bucket_resharding", reshard::get_state),
    Method::rd("guard_bucket_resharding", reshard::guard),
    Method::rd("lc_get_entry", lc::get_entry),
    Method::rd("lc_get_head", lc::get_head),
    Method::rd("lc_get_next_entry", lc::get_next_entry),
    Method::rd("lc_list_entries", lc::list_entries),
    Method::rdwr("lc_put_head", lc::put_head),
    Method::rdwr("lc_rm_entry", lc::rm_entry),
    Method::rdwr("lc_set_entry", lc::set_entry),
    Method::rdwr("mp_upload_part_info_update", obj::update_part),
    Method::rd("obj_check_attrs_prefix", obj::check_attrs_prefix),
    Method::rd("obj_check_mtime", obj::check_mtime),
    Method::rdwr("obj_remove", obj::remove),
    Method::wr("obj_store_pg_ver", obj::store_pg_ver),
    Method::rdwr("reshard_add", reshard::add),
    Method::rd("reshard_get", reshard::get),
    Method::rd("reshard_list", reshard::list),
    Method::rdwr("reshard_log_trim", bi::trim_reshard_log),
    Method::rdwr("reshard_remove", reshard::remove),
    Method::rdwr("set_bucket_resharding", reshard::set_state),
    Method::wr("usage_log_clear", usage::clear),
    Method::rdwr("user_usage_log_add", usage::add),
    Method::rd("user_usage_log_read", usage::read),
    Method::rdwr("user_usage_log_trim", usage::trim),
];
