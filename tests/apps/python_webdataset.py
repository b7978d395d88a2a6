"""The package webdataset, for webdataset_test.py:

  write DIR FILES.json       writes DIR/train-000000.tar, ... and DIR/val-000000.tar from [[kind, key, image, class], ...], by ShardWriter
  read OUT SHARDS            writes the images of all samples to OUT, as NUMBER.png; prints [[key, class], ...] in their order
"""
import json
import pathlib
import sys

import webdataset


def write(folder, files):
    for kind in ('train', 'val'):
        with webdataset.ShardWriter(f'{folder}/{kind}-%06d.tar', maxcount=7, verbose=0) as writer:
            for of, key, image, number in json.loads(pathlib.Path(files).read_text()):
                if of == kind: writer.write({'__key__': key, 'png': pathlib.Path(image).read_bytes(), 'cls': number, 'json': {'label': number}})


def read(out, shards):
    found = []
    for i, sample in enumerate(webdataset.WebDataset(shards, shardshuffle=False)):
        (pathlib.Path(out) / f'{i:03}.png').write_bytes(sample['png'])
        found.append([sample['__key__'], int(sample['cls'])])
    print(json.dumps(found))


if __name__ == '__main__': {'write': write, 'read': read}[sys.argv[1]](*sys.argv[2:])
