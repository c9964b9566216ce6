"""MNIST, faces and CIFAR-10, from a local folder; never bundled or made up."""

import io

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from skdpfair._utils.validate import one_of
from skdpfair.datasets._local import fetch

_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "utkface_32_rgb.npz": "60806218eb17ed5ae5d4bc8343fb010883b78683b81bee9b829f242d25a39886",
    "cifar10_32_rgb_subset.npz": "8d0fef2cd0385441d49d838738140f2eabb776ec9ab0ad04b789fa2b4cb5f5c0",
}
_SUBSETS = ("all", "train", "test")
_DIGITS = [str(digit) for digit in range(10)]
_GENDERS = ["male", "female"]
_RACES = ["White", "Black", "Asian", "Indian", "Others"]
_OBJECTS = ["airplane", "automobile", "bird", "cat", "deer"]
_OBJECTS += ["dog", "frog", "horse", "ship", "truck"]

_ABOUT_MNIST = """\
MNIST
=====

70000 handwritten digits of 28 x 28 grey values, the first 60000 to train on. Sensitive feature: the
digit itself, as the papers on disparate impact do with a digit made rare.

Source: LeCun, Cortes and Burges, made from NIST special databases 1 and 3. Licence as commonly
given: CC BY-SA 3.0; not bundled.
"""
_ABOUT_FACES = """\
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
_ABOUT_CIFAR10 = """\
CIFAR-10, a part
================

12000 colour pictures of 32 x 32 of ten kinds of objects, the first 10000 (1000 a class) to train
on, 2000 (200 a class) to test on. They went through JPEG compression and are a fifth of the set: do
not hold accuracies against published ones. Sensitive feature: the class, for lack of any other.

Source: CIFAR-10 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009). No
formal licence is known; not bundled.
"""


def fetch_mnist(
    *,
    subset="all",
    data_home=None,
    as_frame=True,
    return_X_y=False,
):
    """Load MNIST (handwritten digits) from a local folder, and check its digests.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The training images, the test images, or both, in this order.
    data_home : path-like or None, default=None
        The folder that holds the four files ``train-images-idx3-ubyte`` and so on, plain or with
        ``.gz``, itself or in a subfolder ``mnist``. None means the folder that the environment
        variable ``SKDPFAIR_DATA`` names, else the subfolder ``skdpfair`` of scikit-learn's data
        home.
    as_frame : bool, default=True
        Return ``target`` and ``sensitive_features`` as pandas objects; else numpy arrays. Images
        are always an array.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        With the attributes

        data : ndarray of shape (n_samples, 28, 28), float32
            Grey values divided by 255, in [0, 1].
        target : Series of shape (n_samples,), int64
            The digit, named ``digit``.
        sensitive_features : DataFrame of shape (n_samples, 1)
            The digit again, as text.
        target_names : list of str
            Names of the values of the target.
        DESCR : str
            Description, source and terms of use of the data.

    Raises
    ------
    DataIntegrityError
        If a file is missing, or its sha256 differs from the recorded digest; the message names it.

    Examples
    --------
    >>> from benchmarks.papers.images import fetch_mnist
    >>> fetch_mnist(data_home="no-such-folder")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: train-images-idx3-ubyte is not in no-such-folder...
    """
    one_of("subset", subset, _SUBSETS)
    starts = {"all": ("train", "t10k"), "train": ("train",), "test": ("t10k",)}[subset]
    digests = {name: sha256 for name, sha256 in _SHA256.items() if name.startswith(starts)}
    files = fetch(digests, "mnist", data_home)
    # the headers of idx files are 16 and 8 bytes
    images = [np.frombuffer(files[f"{s}-images-idx3-ubyte"], np.uint8, offset=16) for s in starts]
    labels = [np.frombuffer(files[f"{s}-labels-idx1-ubyte"], np.uint8, offset=8) for s in starts]
    data, digits = _unit(np.concatenate(images).reshape(-1, 28, 28)), np.concatenate(labels)
    target = pd.Series(digits.astype(np.int64), name="digit")
    sensitive = pd.DataFrame({"digit": _named(digits, _DIGITS)})
    return _bunch(data, target, sensitive, _DIGITS, _ABOUT_MNIST, as_frame, return_X_y)


def fetch_faces(
    *,
    subset="all",
    data_home=None,
    as_frame=True,
    return_X_y=False,
):
    """Load a part of UTKFace (faces, 32 x 32) from a local folder, and check its digest.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The 10400 training images, the 2600 test images, or all 13000.
    data_home : path-like or None, default=None
        The folder that holds ``utkface_32_rgb.npz``, itself or in a subfolder ``faces``; None as
        in `fetch_mnist`.
    as_frame, return_X_y
        As in `fetch_mnist`.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        With the attributes

        data : ndarray of shape (n_samples, 3, 32, 32), float32
            Red, green and blue values divided by 255, in [0, 1].
        target : Series of shape (n_samples,), int64
            The gender, 0 male or 1 female, named ``gender``.
        sensitive_features : DataFrame of shape (n_samples, 1)
            The column ``race``, as text.
        attributes : DataFrame of shape (n_samples, 3)
            ``age`` (1 to 116), ``gender`` and ``race``, for other targets or groups.
        target_names : list of str
            Names of the values of the target.
        DESCR : str
            Description, source and terms of use of the data.

    Raises
    ------
    DataIntegrityError
        If the file is missing, or its sha256 differs from the recorded digest.

    Examples
    --------
    >>> from benchmarks.papers.images import fetch_faces
    >>> fetch_faces(data_home="no-such-folder")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: utkface_32_rgb.npz is not in no-such-folder...
    """
    parts = _npz("utkface_32_rgb.npz", "faces", subset, data_home)
    gender, race = _named(parts["gender"], _GENDERS), _named(parts["race"], _RACES)
    attributes = pd.DataFrame({"age": parts["age"].astype(np.int64), "gender": gender})
    attributes["race"] = race
    target = pd.Series(parts["gender"].astype(np.int64), name="gender")
    about = _GENDERS, _ABOUT_FACES, as_frame, return_X_y
    found = _bunch(_channels_first(parts["images"]), target, attributes[["race"]], *about)
    if not return_X_y:
        found.attributes = attributes if as_frame else attributes.to_numpy(object)
    return found


def fetch_cifar10(
    *,
    subset="all",
    data_home=None,
    as_frame=True,
    return_X_y=False,
):
    """Load a part of CIFAR-10 from a local folder, and check its digest.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The 10000 training images, the 2000 test images, or all 12000.
    data_home : path-like or None, default=None
        The folder that holds ``cifar10_32_rgb_subset.npz``, itself or in a subfolder ``cifar10``;
        None as in `fetch_mnist`.
    as_frame, return_X_y
        As in `fetch_mnist`.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        With the attributes

        data : ndarray of shape (n_samples, 3, 32, 32), float32
            Red, green and blue values divided by 255, in [0, 1].
        target : Series of shape (n_samples,), int64
            The class, 0 to 9, named ``label``.
        sensitive_features : DataFrame of shape (n_samples, 1)
            The class again, as text: the data have no protected attribute.
        target_names : list of str
            Names of the values of the target.
        DESCR : str
            Description, source and terms of use of the data.

    Raises
    ------
    DataIntegrityError
        If the file is missing, or its sha256 differs from the recorded digest.

    Examples
    --------
    >>> from benchmarks.papers.images import fetch_cifar10
    >>> fetch_cifar10(data_home="no-such-folder")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: cifar10_32_rgb_subset.npz is not in no-such-folder...
    """
    parts = _npz("cifar10_32_rgb_subset.npz", "cifar10", subset, data_home)
    target = pd.Series(parts["label"].astype(np.int64), name="label")
    sensitive = pd.DataFrame({"label": _named(parts["label"], _OBJECTS)})
    about = _OBJECTS, _ABOUT_CIFAR10, as_frame, return_X_y
    return _bunch(_channels_first(parts["images"]), target, sensitive, *about)


def _npz(name, subfolder, subset, data_home):
    """Return the arrays of an npz file, of one subset."""
    one_of("subset", subset, _SUBSETS)
    content = fetch({name: _SHA256[name]}, subfolder, data_home)[name]
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        split = file["split"]
        rows = slice(None) if subset == "all" else split == ("train", "test").index(subset)
        return {key: file[key][rows] for key in file.files}


def _unit(images):
    """Return bytes as float32 in [0, 1]."""
    return np.divide(images, np.float32(255), dtype=np.float32)


def _channels_first(images):
    return _unit(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _named(codes, names):
    """Return codes as a categorical whose categories are all the public names."""
    return pd.Categorical.from_codes(codes, names)


def _bunch(data, target, sensitive, target_names, about, as_frame, return_X_y):
    if not as_frame:
        target, sensitive = target.to_numpy(), sensitive.to_numpy(object)
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        sensitive_features=sensitive,
        target_names=list(target_names),
        DESCR=about,
    )
