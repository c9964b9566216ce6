"""What the image data sets are, for their DESCR."""

ABOUT_MNIST = """\
MNIST
=====

70000 handwritten digits of 28 x 28 grey values, the first 60000 to train on. Sensitive feature: the
digit itself, as the papers on disparate impact do with a digit made rare.

Source: LeCun, Cortes and Burges, made from NIST special databases 1 and 3. Licence as commonly
given: CC BY-SA 3.0; not bundled.
"""
ABOUT_FACES = """\
UTKFace, a part, 32 x 32
========================

13000 faces, the first 10400 to train on; the target is the gender (male 6782, female 6218).
Sensitive feature: race (White 5621, Black 2501, Asian 1844, Indian 2148, Others 886). Labels are
partly estimated by a model and checked by people: expect wrong ones. No two pictures are equal, but
a person can occur more than once, so privacy per picture is not privacy per person.

Source: UTKFace, aligned and cropped (Zhang, Song and Qi, "Age Progression/Regression by Conditional
Adversarial Autoencoder", 2017), a random part of the pictures whose labels do not contradict each
other, scaled to 32 x 32. For non-commercial research; the rights in each picture stay with its
owner; not bundled.
"""
ABOUT_CIFAR10 = """\
CIFAR-10, a part
================

12000 colour pictures of 32 x 32 of ten kinds of objects, the first 10000 (1000 a class) to train
on, 2000 (200 a class) to test on. They went through JPEG compression and are a fifth of the set: do
not hold accuracies against published ones. Sensitive feature: the class, for lack of any other.

Source: CIFAR-10 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009). No
formal licence is known; not bundled.
"""
