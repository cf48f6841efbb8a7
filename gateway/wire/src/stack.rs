//! A stack whose first few elements need no heap.

/// What is pushed last is popped first; up to `N` elements cost no allocation.
pub(crate) struct Stack<T, const N: usize> {
    first: [T; N],
    /// The others. What was popped stays here until it is overwritten.
    more: Vec<T>,
    len: usize,
}

impl<T: Copy, const N: usize> Stack<T, N> {
    /// An empty stack. `filler` is what unused places hold; nobody sees it.
    pub(crate) fn new(filler: T) -> Self {
        Self { first: [filler; N], more: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, element: T) {
        let place = match self.len.checked_sub(N) {
            None => self.first.get_mut(self.len),
            Some(index) => self.more.get_mut(index),
        };
        match place {
            Some(place) => *place = element,
            None => self.more.push(element),
        }
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<&T> {
        self.len = self.len.checked_sub(1)?;
        self.get(self.len)
    }

    /// Forgets the last `count`.
    pub(crate) fn drop_last(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
    }

    /// The last `count`, in order.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = &T> {
        (self.len.saturating_sub(count)..self.len).filter_map(|index| self.get(index))
    }

    fn get(&self, index: usize) -> Option<&T> {
        match index.checked_sub(N) {
            None => self.first.get(index),
            Some(index) => self.more.get(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_in_order_wherever_they_are_kept() {
        let mut stack = Stack::<usize, 4>::new(0);
        for element in 0..10 {
            assert_eq!(stack.len(), element);
            stack.push(element);
            for count in 0..=element + 2 {
                let start = (element + 1).saturating_sub(count);
                assert!(stack.last(count).copied().eq(start..=element), "{count} of {element}");
            }
        }
        for element in (0..10).rev() {
            assert_eq!(stack.pop(), Some(&element));
            assert_eq!((stack.len(), stack.last(10).count()), (element, element));
        }
        assert_eq!(stack.pop(), None);
        assert_eq!(stack.len(), 0);
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        for count in 0..=8 {
            let mut stack = Stack::<usize, 4>::new(0);
            (0..7).for_each(|element| stack.push(element));
            stack.drop_last(count);
            stack.push(99);
            let kept = 7_usize.saturating_sub(count);
            assert!(stack.last(8).copied().eq((0..kept).chain([99])), "{count}");
        }
    }
}
