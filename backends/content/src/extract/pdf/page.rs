//! The pages of a file in order, with what they inherit.

use std::collections::HashSet;

use super::{
    file::File,
    object::{Dictionary, Object},
};

/// More pages than anybody prints.
const MOST_PAGES: usize = 20_000;
/// Deeper trees of pages than any program writes.
const DEEPEST: usize = 32;

#[derive(Debug)]
pub(super) struct Page {
    /// As they stand in the file: read when the page is drawn, and forgotten with it.
    pub(super) resources: Option<Object>,
    /// A stream or an array of streams, as references.
    pub(super) contents: Option<Object>,
}

/// The pages, by the tree of pages; where there is none, in the order of their numbers.
pub(super) fn pages(file: &mut File<'_>) -> Vec<Page> {
    let mut pages = Vec::new();
    if let Some(root) = file.root.clone()
        && let Object::Dictionary(catalog) = file.resolve(&root)
        && let Some(tree) = catalog.get(b"Pages".as_slice())
    {
        let mut seen = HashSet::new();
        collect(file, tree, None, &mut seen, 0, &mut pages);
    }
    if pages.is_empty() {
        for number in file.numbers() {
            if let Object::Dictionary(node) = file.resolve(&Object::Reference(number))
                && node.get(b"Type".as_slice()).and_then(Object::name) == Some(b"Page")
                && pages.len() < MOST_PAGES
            {
                pages.push(page(&node, None));
            }
        }
    }
    pages
}

fn collect(
    file: &mut File<'_>,
    node: &Object,
    inherited: Option<&Object>,
    seen: &mut HashSet<u32>,
    depth: usize,
    pages: &mut Vec<Page>,
) {
    // A page that is its own grandchild would go on for ever.
    let fresh = matches!(node, Object::Reference(number) if seen.insert(*number));
    if !fresh || depth > DEEPEST || pages.len() >= MOST_PAGES {
        return;
    }
    let Object::Dictionary(node) = file.resolve(node) else { return };
    let Object::Array(kids) = file.get(&node, b"Kids") else {
        return pages.push(page(&node, inherited));
    };
    let inherited = node.get(b"Resources".as_slice()).or(inherited);
    for kid in kids.iter() {
        collect(file, kid, inherited, seen, depth + 1, pages);
    }
}

fn page(node: &Dictionary, inherited: Option<&Object>) -> Page {
    let resources = node.get(b"Resources".as_slice()).or(inherited);
    Page { resources: resources.cloned(), contents: node.get(b"Contents".as_slice()).cloned() }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{
        super::super::{Limits, tests::drawn},
        *,
    };

    #[test]
    fn what_pages_inherit_is_held_once() {
        let file = drawn(&vec![b"null".to_vec(); 200], "<</Font<</F 1>>>>");
        let limits = Limits::default();
        let pages = pages(&mut File::open(&file, &limits).unwrap());
        let held = |page: &Page| match &page.resources {
            Some(Object::Dictionary(resources)) => Rc::as_ptr(resources),
            other => panic!("{other:?}"),
        };
        assert_eq!(pages.len(), 200);
        assert!(pages.iter().all(|page| held(page) == held(&pages[0])));
        let file = drawn(&vec![b"null".to_vec(); 200], " 1 0 R");
        let pages = super::pages(&mut File::open(&file, &limits).unwrap());
        assert!(pages.iter().all(|page| page.resources == Some(Object::Reference(1))));
    }
}
