"""What an honest but curious server can learn about a client's data from one real upload.

See docs/papers/mpfedcon.md §5. In `protocol` a client takes one real step, and attacks use only what the
server saw of it. They are executed on several images, and compared with the truth.

What the results do and do not show:

- Withholding the *gradient* of the head does not protect against an attacker who knows the head's *weights*:
  the control `known_head` reconstructs the images that DLG does. In round 0 the server knows every head,
  because it sent them.
- MpFedcon's protection is that its heads become secret. It holds against an attacker who guesses the head at
  random.
- MpFedcon also sends class centres. For a client with one image, they are that image's representation under
  its label. So the label is revealed, and if the head has one layer, the representation is the encoder's own
  output (settings `centre`).
- All of this is about one image and one step, with a known rate and without momentum.
"""
