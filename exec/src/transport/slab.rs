//! Stores things in flight under small reusable numbers, so that nothing is allocated in steady state.

/// A list with free slots; numbers of removed items are reused, the last first.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    things: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { things: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = Some(thing);
                number
            }
            None => {
                self.things.push(Some(thing));
                u32::try_from(self.things.len() - 1).expect("fewer than 2^32 messages in flight")
            }
        }
    }

    /// # Panics
    /// When no item has this number.
    pub(crate) fn get(&self, number: u32) -> &T {
        self.things[number as usize].as_ref().expect("a message's id is used before it is void")
    }

    /// # Panics
    /// When no item has this number.
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        self.things[number as usize].as_mut().expect("a message's id is used before it is void")
    }

    /// # Panics
    /// When no item has this number.
    pub(crate) fn remove(&mut self, number: u32) -> T {
        let thing = self.things[number as usize].take().expect("a message's id is used before it is void");
        self.free.push(number);
        thing
    }

    /// The items, in order of number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.things.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn numbers_are_reused() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), 'a');
        let c = slab.insert('c');
        assert_eq!((c, *slab.get(b)), (a, 'b'));
        *slab.get_mut(b) = 'd';
        assert_eq!(slab.iter().collect::<String>(), "cd");
    }
}
