"""What a server that keeps to the protocol can learn of a client's data from one real upload
(docs/papers/mpfedcon.md §5).

`upload` makes a client take one real step and keeps what the server saw of it; `labels` and `leakage` work on
that alone; `quality` compares with the truth; `settings` names the attacks; `protocol` carries them out on
several images.

What to expect, so that no result is taken for more than it is:

- Withholding the *gradient* of the head protects nothing against who knows the head's *weights*: the control
  `known_head` reconstructs the images that DLG does. In round 0 the server knows every head, since it dealt
  them out.
- MpFedcon's protection is that its heads become secret. It holds against an attacker who guesses the head at
random.
- MpFedcon sends class centres as well. Of a client with one image they are that image's representation under
  its label: the label is told outright, and where the head has one layer the representation is the encoder's
  own output (settings `centre`).
- All of this is about one image and one step with a known rate and without momentum.
"""
