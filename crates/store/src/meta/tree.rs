//! Objects of a collection in hash order: a row of pages, each with a short sorted row of objects.

use super::Meta;
use super::object::{Key, Object, key_of};
use super::page::Body;
use crate::key::Oid;
use std::cmp::Ordering;

/// A page is split when it holds more objects than this.
const OBJECTS_MAX: usize = 64;

impl Meta {
    fn ids(&self, page: u32) -> &[(Key, u32)] {
        match self.pages.get(page as usize).map(|p| &p.body) {
            Some(Body::Objects { ids, .. }) => ids,
            _ => &[],
        }
    }

    fn ids_mut(&mut self, page: u32) -> Option<&mut Vec<(Key, u32)>> {
        match self.pages.get_mut(page as usize).map(|p| &mut p.body) {
            Some(Body::Objects { ids, .. }) => Some(ids),
            _ => None,
        }
    }

    fn cmp(&self, entry: &(Key, u32), key: &Key, oid: &Oid) -> Ordering {
        entry.0.cmp(key).then_with(|| match self.objects.get(entry.1 as usize) {
            Some(o) if o.is(oid) => Ordering::Equal,
            Some(o) => o.oid.cmp(oid),
            None => Ordering::Less,
        })
    }

    /// Index in the collection's row of the page that holds or would hold `oid`.
    fn page_index(&self, coll: u32, key: &Key, oid: &Oid) -> usize {
        let Some(c) = self.colls.get(coll as usize) else { return 0 };
        let not_after = |(k, p): &(Key, u32)| match k.cmp(key) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.ids(*p).first().is_some_and(|e| self.cmp(e, key, oid) != Ordering::Greater),
        };
        c.tree.partition_point(not_after).saturating_sub(1)
    }

    /// The object's slot.
    pub(crate) fn find(&mut self, coll: u32, oid: &Oid) -> Option<u32> {
        // Changes of one transaction mostly follow each other on one object.
        if let Some(o) = self.objects.get(self.last as usize)
            && o.coll == coll
            && o.is(oid)
        {
            return Some(self.last);
        }
        let key = key_of(oid);
        let page = self.colls.get(coll as usize)?.tree.get(self.page_index(coll, &key, oid))?.1;
        let ids = self.ids(page);
        let i = ids.binary_search_by(|e| self.cmp(e, &key, oid)).ok()?;
        self.last = ids.get(i)?.1;
        Some(self.last)
    }

    /// True if the collection holds the object.
    pub(crate) fn has(&self, coll: u32, oid: &Oid) -> bool {
        let key = key_of(oid);
        let page = self.colls.get(coll as usize).and_then(|c| c.tree.get(self.page_index(coll, &key, oid)));
        page.is_some_and(|p| self.ids(p.1).binary_search_by(|e| self.cmp(e, &key, oid)).is_ok())
    }

    /// Adds an object that is known to be absent.
    pub(crate) fn insert_object(&mut self, object: Object) -> u32 {
        let (coll, key) = (object.coll, key_of(&object.oid));
        self.weight += object.weight();
        let stored = object.stored();
        let id = self.objects.insert(object) as u32;
        self.place_object(id, coll, key);
        self.count_objects(coll, 1, stored, 0);
        id
    }

    fn count_objects(&mut self, coll: u32, add: u64, stored: u64, gone: u64) {
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.usage.objects += add;
            c.usage.stored = c.usage.stored + stored - gone;
        }
        self.usage.objects += add;
        self.usage.stored = self.usage.stored + stored - gone;
    }

    fn place_object(&mut self, id: u32, coll: u32, key: Key) {
        let Some(oid) = self.objects.get(id as usize).map(|o| o.oid.clone()) else { return };
        let mut i = self.page_index(coll, &key, &oid);
        let page = |s: &Self, i: usize| s.colls.get(coll as usize).and_then(|c| c.tree.get(i)).map(|t| t.1);
        if let Some(p) = page(self, i) {
            // This may split the page.
            self.touch(p);
            i = self.page_index(coll, &key, &oid);
        }
        let page = match page(self, i) {
            Some(p) => {
                self.touch(p);
                let at = self.ids(p).binary_search_by(|e| self.cmp(e, &key, &oid)).unwrap_or_else(|i| i);
                if let Some(ids) = self.ids_mut(p) {
                    ids.insert(at, (key, id));
                }
                if at == 0
                    && let Some(t) = self.colls.get_mut(coll as usize).and_then(|c| c.tree.get_mut(i))
                {
                    t.0 = key;
                }
                p
            }
            None => {
                let p = self.new_page(Body::Objects { coll, ids: vec![(key, id)] });
                if let Some(c) = self.colls.get_mut(coll as usize) {
                    c.tree.push((key, p));
                }
                p
            }
        };
        if let Some(o) = self.objects.get_mut(id as usize) {
            o.page = page;
        }
        if self.ids(page).len() > OBJECTS_MAX {
            let n = self.ids(page).len() / 2;
            self.split_at(page, n);
        }
    }

    /// Takes an object out of its page; it stays in its slot.
    fn unplace_object(&mut self, id: u32) {
        self.touch_object(id);
        let Some(o) = self.objects.get(id as usize) else { return };
        let (page, coll) = (o.page, o.coll);
        let Some(ids) = self.ids_mut(page) else { return };
        let Some(at) = ids.iter().position(|e| e.1 == id) else { return };
        let key = ids.remove(at).0;
        let first = ids.first().map(|e| e.0);
        if at > 0 {
            return;
        }
        // The first object names its page in the row.
        let Some(oid) = self.objects.get(id as usize).map(|o| o.oid.clone()) else { return };
        let hint = self.colls.get(coll as usize).map_or(0, |c| c.tree.partition_point(|t| t.0 < key));
        let Some(c) = self.colls.get_mut(coll as usize) else { return };
        let i = (hint.saturating_sub(1)..c.tree.len()).find(|i| c.tree.get(*i).is_some_and(|t| t.1 == page));
        debug_assert!(i.is_some(), "page of {oid:?} is in its collection's row");
        let Some(i) = i else { return };
        match first {
            Some(k) => c.tree[i].0 = k,
            None => {
                c.tree.remove(i);
                self.free_page(page);
            }
        }
    }

    /// Removes an object with all it has. Its blocks lose one reference each.
    pub(crate) fn remove_object(&mut self, id: u32) {
        self.touch_object(id);
        self.weight -= self.objects.get(id as usize).map_or(0, Object::weight);
        self.omap_rm_range(id, &[], None);
        self.unplace_object(id);
        let Some(o) = self.objects.try_remove(id as usize) else { return };
        self.last = u32::MAX;
        let stored = o.stored();
        if let Some(c) = self.colls.get_mut(o.coll as usize) {
            c.usage.objects -= 1;
            c.usage.stored -= stored;
        }
        self.usage.objects -= 1;
        self.usage.stored -= stored;
        for (_, p, _) in o.map.iter(0, super::map::BLOCKS_MAX) {
            self.unref(p.phys());
        }
    }

    /// Announces a change of an object.
    #[inline]
    pub(crate) fn touch_object(&mut self, id: u32) {
        if let Some(p) = self.objects.get(id as usize).map(|o| o.page) {
            self.touch(p);
        }
    }

    /// Gives an object another name.
    pub(crate) fn rename_object(&mut self, id: u32, to: Oid) {
        self.unplace_object(id);
        self.last = u32::MAX;
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        self.weight -= o.weight();
        let (coll, key) = (o.coll, key_of(&to));
        o.rename(to);
        self.weight += o.weight();
        self.place_object(id, coll, key);
    }

    /// Splits a page into parts of about `aim` bytes.
    pub(crate) fn split_objects(&mut self, page: u32, aim: u64) {
        let mut bytes = 0;
        let mut cuts = Vec::new();
        for (i, (_, id)) in self.ids(page).iter().enumerate() {
            let w = self.objects.get(*id as usize).map_or(0, Object::weight);
            if i > 0 && bytes + w > aim {
                cuts.push(i);
                bytes = 0;
            }
            bytes += w;
        }
        // From the end, so that indices stay right.
        for at in cuts.into_iter().rev() {
            self.split_at(page, at);
        }
    }

    fn split_at(&mut self, page: u32, at: usize) {
        self.touch(page);
        let Some(Body::Objects { coll, .. }) = self.pages.get(page as usize).map(|p| &p.body) else { return };
        let coll = *coll;
        let Some(ids) = self.ids_mut(page) else { return };
        if at == 0 || at >= ids.len() {
            return;
        }
        let upper = ids.split_off(at);
        let (Some(first), Some(low)) = (upper.first().map(|e| e.0), ids.first().map(|e| e.0)) else { return };
        let moved: Vec<u32> = upper.iter().map(|e| e.1).collect();
        let new = self.new_page(Body::Objects { coll, ids: upper });
        for id in moved {
            if let Some(o) = self.objects.get_mut(id as usize) {
                o.page = new;
            }
        }
        if let Some(c) = self.colls.get_mut(coll as usize) {
            let hint = c.tree.partition_point(|t| t.0 < low);
            let i = (hint..c.tree.len()).find(|i| c.tree.get(*i).is_some_and(|t| t.1 == page));
            let i = i.unwrap_or(c.tree.len().saturating_sub(1));
            c.tree.insert((i + 1).min(c.tree.len()), (first, new));
        }
    }

    /// Objects with `start <= oid < end`, at most `max`, and the one after them.
    pub(crate) fn list(&self, coll: u32, start: &Oid, end: Option<&Oid>, max: usize) -> (Vec<Oid>, Option<Oid>) {
        let key = key_of(start);
        let mut out = Vec::new();
        let Some(c) = self.colls.get(coll as usize) else { return (out, None) };
        let first = self.page_index(coll, &key, start);
        for (_, page) in c.tree.iter().skip(first) {
            for e in self.ids(*page) {
                let Some(o) = self.objects.get(e.1 as usize) else { continue };
                if o.oid < *start {
                    continue;
                }
                if end.is_some_and(|end| o.oid >= *end) {
                    return (out, None);
                }
                if out.len() >= max {
                    return (out, Some(o.oid.clone()));
                }
                out.push(o.oid.clone());
            }
        }
        (out, None)
    }
}
